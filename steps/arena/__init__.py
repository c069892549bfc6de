"""The evaluation of self-play: an arena in which the trained agent, a fixed ladder, earlier generations
and further opponents play each other.

entrants.py      who plays, and who meets whom
games.py         the tables of games, which a later attempt continues
standing.py      from those tables to ratings and shares
play_matches.py  what `steps.evaluate` does for self-play
film.py          what `steps.play` films
"""
