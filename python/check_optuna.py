#!/usr/bin/env python3
"""Reads a study of `trireme tune` with Optuna's own code and its dashboard's, and compares with what SQLite holds.

    python/check_optuna.py STUDY.db

Prints what Optuna finds. Exit status: 0 when all agrees, 1 when something differs, 77 when Optuna is not installed.
"""

import json
import sqlite3
import sys
from wsgiref.util import setup_testing_defaults


def ask_dashboard(storage, path):
    """What the dashboard's server answers to GET."""
    from optuna_dashboard import wsgi

    environ = {"PATH_INFO": path, "REQUEST_METHOD": "GET", "QUERY_STRING": ""}
    setup_testing_defaults(environ)
    status = []
    body = b"".join(wsgi(storage)(environ, lambda line, headers, info=None: status.append(line)))
    assert status[0].startswith("200"), (path, status, body[:500])
    return json.loads(body)


def main() -> int:
    file = sys.argv[1]
    try:
        import optuna
    except ImportError as error:
        print(f"skipped: Optuna is not installed ({error})", file=sys.stderr)
        return 77
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    storage = f"sqlite:///{file}"
    study = optuna.load_study(study_name=None, storage=storage)
    rows = sqlite3.connect(file).execute("SELECT number, state, trial_id FROM trials ORDER BY number").fetchall()
    assert [trial.number for trial in study.trials] == [number for number, _, _ in rows], rows
    for trial, (_, state, _) in zip(study.trials, rows):
        assert trial.state.name == state, (trial, state)
        assert trial.params and trial.distributions.keys() == trial.params.keys(), trial
        for name, value in trial.params.items():  # Optuna checks that a value lies in its distribution
            assert trial.distributions[name]._contains(trial.distributions[name].to_internal_repr(value)), (name, value)
        if state == "COMPLETE":
            assert trial.value is not None and trial.duration.total_seconds() >= 0, trial
            assert all("seed" in seed for seed in trial.user_attrs["seeds"]), trial.user_attrs
    complete = [trial for trial in study.trials if trial.state.name == "COMPLETE"]
    better = min if study.direction == optuna.study.StudyDirection.MINIMIZE else max
    assert study.best_value == better(trial.value for trial in complete)
    # Optuna can go on with it: its own sampler takes our trials as history.
    sampled = optuna.load_study(study_name=None, storage=storage, sampler=optuna.samplers.TPESampler(n_startup_trials=1, seed=1))
    trial = sampled.ask(dict(complete[0].distributions))
    sampled.tell(trial, state=optuna.trial.TrialState.FAIL)
    assert len(sampled.trials) == len(rows) + 1

    summary = ask_dashboard(storage, "/api/studies")
    assert [entry["study_name"] for entry in summary["study_summaries"]] == [study.study_name], summary
    detail = ask_dashboard(storage, f"/api/studies/{study._study_id}")
    assert len(detail["trials"]) == len(rows) + 1, len(detail["trials"])
    states = sorted({state for _, state, _ in rows})
    print(f"{study.study_name}: {len(rows)} trials ({', '.join(states)}), best {study.best_value:g}, Optuna {optuna.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
