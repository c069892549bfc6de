"""In an actor's place, `python -m tests.seeing_actor FOLDER COUNT …`: writes which GPUs it sees, and goes
when so many have begun."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path


def main(folder: Path, count: int) -> None:
    begun, place = time.monotonic(), folder / f"begun-{os.getpid()}"
    place.touch()
    while len(list(folder.glob("begun-*"))) < count:
        if time.monotonic() > begun + 60:
            raise SystemExit(f"fewer than {count} have begun")
        time.sleep(0.01)
    seen = {"CUDA_VISIBLE_DEVICES": os.environ["CUDA_VISIBLE_DEVICES"]}
    told = {"member": sys.argv[-1], "begun": begun, "ended": time.monotonic(), **seen}
    place.with_name(f"told-{os.getpid()}.json").write_text(json.dumps(told))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
