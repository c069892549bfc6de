"""The names that other libraries give to parameters of this project, for the answer to a name that is
unknown here.

Most are another word for the same number. Where the number itself means something else, the answer
says how to convert it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from config.environment import COUNTED_BY

ENVIRONMENTS = tuple((name, "") for name in COUNTED_BY)
ROLLOUT = (("rollout_length", ""), ("unroll_length", ""), ("n_step", ""))
TOTAL = (("steps", "which counts the steps of all environments"),)
MINIBATCH = (
    ("minibatches", "which is their number: num_envs * rollout_length / the rows of one"),
    ("batch_size", ""),
)
BATCH = (
    ("rollout_length", "which counts the steps of each environment: rows of the batch / num_envs"),
    ("batch_size", ""),
)
LEARNING_RATE = (("learning_rate", "which is that of policy and critics"),)
RAY_STEPS = (("steps", "which counts the steps of one training and ends it"),)
OTHER_NAMES: Mapping[str, tuple[tuple[str, str], ...]] = {
    # The experiment.
    "total_timesteps": TOTAL,
    "n_timesteps": TOTAL,
    "num_timesteps": TOTAL,
    "timesteps": TOTAL,
    "total_steps": TOTAL,
    "num_steps_total": TOTAL,
    "timesteps_total": RAY_STEPS,
    "num_env_steps_sampled_lifetime": RAY_STEPS,
    "total_frames": (("steps", "which is a quarter of the frames in Atari games, else the same"),),
    "num_frames": (("steps", "which is a quarter of the frames in Atari games, else the same"),),
    "env": (("game", ""),),
    "env_id": (("game", ""),),
    "env_name": (("game", ""),),
    "environment": (("game", ""),),
    "env_kwargs": (("env_options", ""),),
    "env_config": (("env_options", ""),),
    "env_wrapper": (("wrappers", ""),),
    "n_seeds": (("runs", ""),),
    "num_seeds": (("runs", ""),),
    "num_samples": (("runs", ""),),
    "n_runs": (("runs", ""),),
    "log_dir": (("outdir", ""),),
    "log_folder": (("outdir", ""),),
    "output_dir": (("outdir", ""),),
    "storage_path": (("outdir", ""),),
    "n_eval_episodes": (("evaluation_episodes", ""),),
    "eval_episodes": (("evaluation_episodes", ""),),
    "evaluation_duration": (("evaluation_episodes", ""),),
    "save_freq": (("checkpoint_interval", "which counts epochs"),),
    "checkpoint_freq": (("checkpoint_interval", "which counts epochs"),),
    "eval_freq": (("evaluations", "which is their number over the whole training"),),
    "evaluation_interval": (("evaluations", "which is their number over the whole training"),),
    "capture_video": (("video_episodes", "which is a number"),),
    "cuda": (("device", ""),),
    "num_threads": (("threads", ""),),
    "num_gpus": (("gpus", ""),),
    # Environments, actors and workers.
    **dict.fromkeys((*COUNTED_BY, "n_envs", "num_envs_per_env_runner", "num_envs_per_worker"), ENVIRONMENTS),
    "num_workers": (("actors", ""), ("workers", "")),
    "num_env_runners": (("actors", ""), ("workers", "")),
    "num_actors": (("actors", ""), ("workers", "")),
    "num_learners": (("learners", ""),),
    "norm_obs": (("normalise_observations", ""),),
    "norm_reward": (("normalise_rewards", ""),),
    "clip_reward": (("clip_rewards", ""),),
    # Optimisation.
    "lr": (("learning_rate", ""),),
    "policy_lr": LEARNING_RATE,
    "q_lr": LEARNING_RATE,
    "anneal_lr": (("anneal_learning_rate", ""),),
    "gamma": (("discount", ""),),
    "max_grad_norm": (("max_gradient_norm", ""),),
    "grad_clip": (("max_gradient_norm", ""),),
    "net_arch": (("hidden_sizes", ""),),
    "fcnet_hiddens": (("hidden_sizes", ""),),
    # Actor and critic.
    "n_steps": ROLLOUT,
    "num_steps": ROLLOUT,
    "rollout_fragment_length": ROLLOUT,
    "n_epochs": (("update_epochs", ""),),
    "num_epochs": (("update_epochs", ""),),
    "num_sgd_iter": (("update_epochs", ""),),
    "num_minibatches": (("minibatches", ""),),
    "batch_size": MINIBATCH,
    "minibatch_size": MINIBATCH,
    "sgd_minibatch_size": MINIBATCH,
    "train_batch_size": BATCH,
    "train_batch_size_per_learner": BATCH,
    "lam": (("gae_lambda", ""),),
    "lambda": (("gae_lambda", ""),),
    "lambda_": (("gae_lambda", ""),),
    "norm_adv": (("normalise_advantages", ""),),
    "normalize_advantage": (("normalise_advantages", ""),),
    "clip_coef": (("clip", ""),),
    "clip_range": (("clip", ""),),
    "clip_param": (("clip", ""),),
    "clip_vloss": (("clip_value_loss", ""),),
    "ent_coef": (("entropy_coefficient", ""), ("alpha", "which is learnt where it is empty")),
    "entropy_coeff": (("entropy_coefficient", ""),),
    "vf_coef": (("value_coefficient", ""),),
    "vf_loss_coeff": (("value_coefficient", ""),),
    # A replay.
    "buffer_size": (("replay_size", ""),),
    "replay_buffer_capacity": (("replay_size", ""),),
    "train_freq": (("train_every", "which counts the steps of all environments"),),
    "train_frequency": (("train_every", "which counts the steps of all environments"),),
    "gradient_steps": (("updates", ""),),
    "tau": (("target_rate", ""),),
    "polyak": (("target_rate", "which is 1 - polyak"),),
    "policy_noise": (("target_noise", ""),),
    "autotune": (("alpha", "which is learnt where it is empty"),),
    "target_update_interval": (("target_every", ""),),
    "target_network_frequency": (("target_every", ""),),
    "target_network_update_freq": (("target_every", ""),),
    "exploration_final_eps": (("final_epsilon", ""),),
    "end_e": (("final_epsilon", ""),),
    "prioritized_replay_alpha": (("priority_exponent", ""),),
    "prioritized_replay_beta": (("importance_exponent", ""),),
    "n_quantiles": (("quantiles", ""),),
    "num_simulations": (("simulations", ""),),
}  # fmt: skip
"""Their name -> our names, each with the difference of its number, if there is one. The first that an
algorithm has is the answer."""


def of_others(name: str, known: Collection[str]) -> tuple[str, str]:
    """Our parameter for a name of others, among the known ones, and how its number differs; both
    are empty if there is none.
    """
    for ours, difference in OTHER_NAMES.get(name.lower().replace("-", "_"), ()):
        if ours in known:
            return ours, difference
    return "", ""
