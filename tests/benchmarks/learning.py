"""Does it learn? `make learning [GAMES=…]` trains three runs a game with the presets and holds their evaluations against a bar.

Each experiment is the whole pipeline, `python -m workflows.submit`, in results/learning/<game>; it continues where an earlier call stopped.
Bars: issue "the whole experiment by one command", point 9, set below the published returns of rl-baselines3-zoo and CleanRL.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BARS = {"cartpole": 490.0, "acrobot": -90.0, "pendulum": -250.0, "lunarlander": 200.0}
"""Game -> the least mean return of the final greedy policies, over three runs of the preset's length."""
RESULTS = Path("results/learning")


def main(games: list[str]) -> int:
    """Train the games, all by default; prints one row each and returns 1 if one stays below its bar."""
    rows = [row(game) for game in games or BARS]
    print("| game | steps | mean return of 3 runs | runs | bar | |\n|---|---|---|---|---|---|")
    for game, steps, mean, scores, bar in rows:
        each, verdict = ", ".join(f"{score:.1f}" for score in scores), "ok" if mean >= bar else "MISSED"
        print(f"| {game} | {steps:,} | {mean:.1f} | {each} | {bar:g} | {verdict} |")
    return int(any(mean < bar for _, _, mean, _, bar in rows))


def row(game: str) -> tuple[str, int, float, list[float], float]:
    """Game, environment steps of a run, mean evaluation, every run's evaluation, bar."""
    directory = RESULTS / game
    given = [f"game={game}", "runs=3", f"outdir={directory}"]
    command = [sys.executable, "-m", "workflows.submit", "ppo", "--local", *(word for one in given for word in ("-p", one))]
    print("$", " ".join(["python", *command[1:]]), flush=True)
    subprocess.run(command, check=True)
    average = json.loads((directory / "average" / "summary.json").read_text())
    lines = [line.split(",") for line in (directory / "average" / "evaluation.csv").read_text().splitlines()]
    scores, steps = ([float(line[lines[0].index(name)]) for line in lines[1:]] for name in ("return_mean", "step"))
    return game, int(max(steps)), average["evaluation"]["mean"], scores, BARS[game]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
