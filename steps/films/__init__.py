"""The films of a run: whether they can be made on this machine, and how pictures become a file.

skipping.py  films, or the reason why there is none
mp4.py       a file that every browser plays
"""
