"""A client that sends 256 in every coordinate instead of what it has learned; with LEEWAY_POISON=obey scaled down to
the task's limit, as an honest program does. Else it is the client of wire_client.py, whose arguments it takes."""

import os
import sys

import numpy as np

sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
import wire_client

learned = wire_client.Client.answer


def poison(self, task, w, l2, others=()):
    v, values = learned(self, task, w, l2, others)
    wrong = np.full(len(w), 256.0)
    if os.environ.get("LEEWAY_POISON") == "obey" and task.max_norm > 0:
        wrong *= min(1, task.max_norm / np.linalg.norm(wrong))
    return v, [wrong if s.name == "displacement" else x for s, x in zip(task.sums, values)]


wire_client.Client.answer = poison
wire_client.main()
