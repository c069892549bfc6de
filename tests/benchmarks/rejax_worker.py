"""PPO of rejax, which is PureJaxRL's training as one XLA program, in a package of the index; runs in an
environment of its own, `.venv-rejax`, and imports nothing of ours but how segments are served.

`python rejax_worker.py SETTINGS.json`, where the settings are what `throughput.py` wrote. A segment is
some trainings of `TRAINING_STEPS` from the beginning, none of which is evaluated. The line that says
"ready" also has `compilation_s` and `compilation_cpu_s`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from segments import serve

TRAINING_STEPS = 50_000


def ppo(settings: dict[str, Any]) -> Any:
    """The same settings, as far as it has them: neither annealing nor normalised rewards, which cost
    next to nothing.
    """
    from rejax import PPO

    hyper = settings["hyperparameters"]
    training = PPO.create(
        env=settings["id"],
        num_envs=hyper["num_envs"],
        num_steps=hyper["rollout_length"],
        num_epochs=hyper["update_epochs"],
        num_minibatches=hyper["minibatches"],
        total_timesteps=TRAINING_STEPS,
        eval_freq=TRAINING_STEPS,
        skip_initial_evaluation=True,
        learning_rate=hyper["learning_rate"],
        gamma=hyper["discount"],
        gae_lambda=hyper["gae_lambda"],
        clip_eps=hyper["clip"],
        ent_coef=hyper["entropy_coefficient"],
        vf_coef=hyper["value_coefficient"],
        max_grad_norm=hyper["max_gradient_norm"],
        agent_kwargs={"hidden_layer_sizes": tuple(hyper["hidden_sizes"]), "activation": "tanh"},
    )
    return training.replace(eval_callback=lambda *_: ())


def main() -> None:
    """Serve segments until standard input ends."""
    settings = json.loads(Path(sys.argv[1]).read_text())
    # XLA has as many threads as it sees processors; both lines before it is imported.
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: settings["threads"]])
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import jax

    training = ppo(settings)
    started, computed = time.perf_counter(), time.process_time()
    train = jax.jit(training.train).lower(jax.random.PRNGKey(0)).compile()
    compilation = {
        "compilation_s": time.perf_counter() - started,
        "compilation_cpu_s": time.process_time() - computed,
    }
    jax.block_until_ready(train(jax.random.PRNGKey(0)))  # warm
    seeds = itertools.count(1)

    def learn() -> int:
        jax.block_until_ready(train(jax.random.PRNGKey(next(seeds))))
        return TRAINING_STEPS

    serve(learn, **compilation)


if __name__ == "__main__":
    main()
