"""The value of a position of Connect Four, exactly: alpha–beta on bitboards after Pascal Pons
(blog.gamesolver.org), independent of the game that it checks. Late positions take milliseconds, the
first moves hours.

The score is how many of one's own stones are left, plus one, when the game is won; negative when it is
lost; 0 for a draw.
"""

from __future__ import annotations

WIDTH, HEIGHT = 7, 6
COLUMN = HEIGHT + 1
ORDER = (3, 2, 4, 1, 5, 0, 6)
BOTTOM = sum(1 << COLUMN * column for column in range(WIDTH))
BOARD = BOTTOM * ((1 << HEIGHT) - 1)


class Solver:
    """Remembers upper bounds of what it has seen."""

    def __init__(self) -> None:
        self.bounds: dict[int, int] = {}

    def score(self, own: int, taken: int) -> int:
        """own: the stones of whose turn it is; nobody has won yet."""
        stones = taken.bit_count()
        if stones == WIDTH * HEIGHT:
            return 0
        if winning(own, taken) & playable(taken):
            return (WIDTH * HEIGHT + 1 - stones) // 2
        return self._search(own, taken, stones, -21, 21)

    def move_scores(self, own: int, taken: int) -> dict[int, int]:
        """Of every legal column, for whose turn it is."""
        scores, stones = {}, taken.bit_count()
        for column in range(WIDTH):
            stone = playable(taken) & column_mask(column)
            if stone and stone & winning(own, taken):
                scores[column] = (WIDTH * HEIGHT + 1 - stones) // 2
            elif stone:
                scores[column] = -self.score(own ^ taken, taken | stone)
        return scores

    def _search(self, own: int, taken: int, stones: int, alpha: int, beta: int) -> int:
        """Nobody can win at once."""
        moves = not_losing(own, taken)
        if not moves:
            return -((WIDTH * HEIGHT - stones) // 2)
        if stones >= WIDTH * HEIGHT - 2:
            return 0
        alpha = max(alpha, -((WIDTH * HEIGHT - 2 - stones) // 2))
        key = own + taken
        beta = min(beta, self.bounds.get(key, (WIDTH * HEIGHT - 1 - stones) // 2))
        if alpha >= beta:
            return beta
        for column in ORDER:
            stone = moves & column_mask(column)
            if stone:
                score = -self._search(own ^ taken, taken | stone, stones + 1, -beta, -alpha)
                if score >= beta:
                    return score
                alpha = max(alpha, score)
        self.bounds[key] = alpha
        return alpha


def from_moves(moves: str) -> tuple[int, int]:
    """Own and taken after columns numbered from 1."""
    own = taken = 0
    for move in moves:
        own ^= taken
        taken |= taken + (1 << COLUMN * (int(move) - 1))
    return own, taken


def column_mask(column: int) -> int:
    return ((1 << HEIGHT) - 1) << COLUMN * column


def playable(taken: int) -> int:
    return (taken + BOTTOM) & BOARD


def winning(own: int, taken: int) -> int:
    """Empty cells that make four for own."""
    found = (own << 1) & (own << 2) & (own << 3)
    for step in (COLUMN, COLUMN - 1, COLUMN + 1):
        pair = (own << step) & (own << 2 * step)
        found |= pair & (own << 3 * step)
        found |= pair & (own >> step)
        pair = (own >> step) & (own >> 2 * step)
        found |= pair & (own << step)
        found |= pair & (own >> 3 * step)
    return found & (BOARD ^ taken)


def not_losing(own: int, taken: int) -> int:
    """Playable cells after which the other one cannot win at once."""
    moves, threats = playable(taken), winning(own ^ taken, taken)
    forced = moves & threats
    if forced:
        if forced & (forced - 1):
            return 0
        moves = forced
    return moves & ~(threats >> 1)
