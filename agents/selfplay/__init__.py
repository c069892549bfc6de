"""Self-play: workers that play games with themselves, what a trainer learns from them, and the player
that comes of it.
"""
