"""Flower clients in a Leeway federation: change one import.

    leeway.flower.start_client(server_address="127.0.0.1:4760", client=MyClient(), examples=len(data))
    leeway.flower.start_client(server_address="127.0.0.1:4760", client_fn=client_fn, node_config={"partition-id": 3})

Takes an unchanged NumPyClient by its shape, or the Client that its to_client() makes: fit(parameters, config) -> (arrays, n,
metrics) and, where they are needed, get_parameters(config) and evaluate(parameters, config) -> (loss, n, metrics). A client_fn
takes a Context, or a cid as earlier versions had it. Imports nothing of Flower. A client that honours config["local_steps"] (1:
one step on all data) and config["learning_rate"] gets drift, else measures by displacements.
"""

from __future__ import annotations

import inspect
import socket
from dataclasses import dataclass, field
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple

import numpy as np

from leeway._errors import Error
from leeway._serve import serve
from leeway._tensors import Tensor, save as save_tensors, split

UNKNOWN = {"hessian", "smoothness", "convexity", "iterate_bias_squared", "pseudo_gradient_variance"}


def save(client: Any, path: str) -> None:
    """Writes the initial model of a run from the client's get_parameters."""
    arrays = _parameters(_unwrapped(client))
    if not arrays:
        raise Error("the client has no get_parameters() that returns the initial model; write one: "
                    "leeway.save({'parameter_000': array, ...}, path), in the order of fit's parameters")
    save_tensors({f"parameter_{i:03}": np.asarray(a) for i, a in enumerate(arrays)}, path)


def start_client(*, server_address: str, client: Any = None, client_fn: Any = None, examples: Optional[int] = None,
                 test_examples: int = 0, name: Optional[str] = None, node_config: Optional[Mapping[str, Any]] = None,
                 run_config: Optional[Mapping[str, Any]] = None, **options: Any) -> None:
    """Takes part in a run, and returns when it is over. The tensors of the run's model are the client's parameters, in
    their order. examples: how many the client trains on; default: what fit returns for the initial parameters.
    node_config, run_config: of the Context that client_fn gets, such as {"partition-id": 3, "num-partitions": 10}.
    options: those of leeway-client, such as tls_ca='ca.crt'; and those of Flower's start_client, of which insecure=True allows a
    server on another machine without TLS, and max_wait_time is the time without a server after which to give up."""
    options = _known(options)
    if (client is None) == (client_fn is None):
        raise Error("give either client, a NumPyClient, or client_fn, which makes one")
    if client is None:
        client = _made_by(client_fn, Context(node_config=dict(node_config or {}), run_config=dict(run_config or {})))
    host = FlowerHost(_unwrapped(client), examples, test_examples, name)
    serve(server_address, host, options)


start_numpy_client = start_client  # as earlier versions of Flower called it


def _known(options: Dict[str, Any]) -> Dict[str, Any]:
    """Flower's options as those of leeway-client; the others as they are."""
    for name in ("root_certificates", "authentication_keys"):
        if options.pop(name, None) is not None:
            raise Error(f"{name} is of Flower's own connections; give the files of Leeway's instead: tls_ca='ca.crt', "
                        "tls_cert='a.crt', tls_key='a.key' (docs/security.md)")
    for name in ("grpc_max_message_length", "transport", "max_retries"):
        options.pop(name, None)  # there is no limit, and one transport
    wait, insecure = options.pop("max_wait_time", None), options.pop("insecure", None)
    return {**options, **({} if wait is None else {"give_up": wait}), **({"insecure_anywhere": True} if insecure else {})}


class State(Dict[str, Any]):
    """Records by name, as in flwr.app.RecordDict. Those of a kind are found among all: no two have the same name."""

    @property
    def array_records(self) -> "State":
        return self

    metric_records = config_records = array_records
    parameters_records = metrics_records = configs_records = array_records  # in earlier versions


@dataclass
class Context:
    """What a client_fn gets, with the fields of flwr.app.Context."""

    run_id: int = 0
    node_id: int = 0
    node_config: Dict[str, Any] = field(default_factory=dict)
    state: State = field(default_factory=State)
    run_config: Dict[str, Any] = field(default_factory=dict)
    series_id: int = 0


def _made_by(client_fn: Callable[[Any], Any], context: Context) -> Any:
    """Earlier versions of Flower gave a client_fn the client's id, as text."""
    names = list(inspect.signature(client_fn).parameters.values())
    if len(names) != 1:
        raise Error("client_fn must have one parameter: def client_fn(context)")
    if names[0].name == "cid" or names[0].annotation in (str, "str"):
        return client_fn(str(context.node_config.get("partition-id", context.node_id)))
    return client_fn(context)


class FlowerHost:
    """One client."""

    def __init__(self, client: Any, examples: Optional[int], test_examples: int, name: Optional[str]):
        if not hasattr(client, "fit"):
            raise Error(f"client is {type(client).__name__}, which has no fit(); give a NumPyClient")
        self._client = client
        if examples is None:
            initial = _parameters(client)
            if not initial:
                raise Error("the client has no get_parameters() to start from; say how many examples it trains on: "
                            "start_client(..., examples=len(data))")
            _, examples, _ = _fit(client, initial, {"round": 0, "server_round": 0, "local_steps": 1, "local_epochs": 0,
                                                    "learning_rate": 0.0, "batch_size": 0})
        self._examples, self._test_examples = int(examples), test_examples
        self._name = name or socket.gethostname()
        self._tensors: List[Tensor] = []

    def clients(self) -> List[Dict[str, Any]]:
        return [{"name": self._name, "examples": self._examples, "test_examples": self._test_examples}]

    def schema(self) -> Dict[str, Any]:
        return {}

    def prepare(self, tensors: List[Tensor], dtype: np.dtype, message: Mapping[str, Any]) -> None:
        self._tensors = tensors

    def _fit(self, model: np.ndarray, order: Dict[str, Any], steps: int) -> Tuple[np.ndarray, Mapping[str, Any]]:
        rule = order["rule"]
        config = {"round": order["round"], "server_round": order["round"], "local_steps": steps,
                  "local_epochs": rule["epochs"], "learning_rate": rule["step_size"], "batch_size": rule["batch_size"]}
        arrays, _, metrics = _fit(self._client, list(split(model.copy(), self._tensors).values()), config)
        if len(arrays) != len(self._tensors):
            raise Error(f"fit returned {len(arrays)} arrays, the run's model has {len(self._tensors)} tensors")
        flat = np.empty_like(model)
        for array, (name, part) in zip(arrays, split(flat, self._tensors).items()):
            if np.shape(array) != part.shape:
                raise Error(f"fit returned shape {list(np.shape(array))} for tensor '{name}', which has "
                            f"{list(part.shape)}")
            part[...] = array
        if not np.isfinite(flat).all():
            raise Error("fit returned a value that is not finite: lower the learning rate")
        return model - flat, metrics

    def answer(self, order: Dict[str, Any], model: np.ndarray) -> Tuple[Dict[str, float], Sequence[np.ndarray]]:
        names = {s["name"] for s in order["sums"]}
        if names & UNKNOWN:
            raise Error(f"the round asks for {sorted(names & UNKNOWN)[0]}, which a Flower client cannot report")
        eta, steps = order["rule"]["step_size"], order["rule"]["steps"]
        vectors: Dict[str, np.ndarray] = {}
        metrics: Mapping[str, Any] = {}
        gradient = None
        if names & {"gradient", "drift"}:
            step, metrics = self._fit(model, dict(order, rule=dict(order["rule"], batch_size=0, step_size=eta or 1.0)), 1)
            gradient = step / (eta or 1.0)
            vectors["gradient"] = gradient
        for s in order["sums"]:
            if s["name"] in ("displacement", "drift"):
                h = s["steps"] or steps
                u, metrics = self._fit(model, order, h)
                vectors[s["key"]] = u if s["name"] == "displacement" else gradient - u / (eta * max(h, 1))
        return self._numbers(order, model, metrics), [vectors[s["key"]] for s in order["sums"] if s["shape"] != "number"]

    def _numbers(self, order: Dict[str, Any], model: np.ndarray, metrics: Mapping[str, Any]) -> Dict[str, float]:
        wanted = {s["key"] for s in order["sums"] if s["shape"] == "number"}
        values: Dict[str, float] = {}
        if wanted & {"test_examples", "test_loss", "test_correct"} or "loss" not in metrics and "loss" in wanted:
            loss, n, more = self._client.evaluate(list(split(model.copy(), self._tensors).values()),
                                                  {"round": order["round"], "server_round": order["round"]})
            if n < 1 and "loss" in wanted and "loss" not in metrics:
                raise Error("the round asks for the loss, and evaluate() had no examples: let fit() return it in its metrics, "
                            "as 'loss', or set loss_off: true in the train phase")
            n = min(int(n), self._test_examples)
            values = {"loss": float(loss), "test_examples": n, "test_loss": float(loss) * n,
                      "test_correct": round(float(more.get("accuracy", 0.0)) * n)}
        if "loss" in metrics:
            values["loss"] = float(metrics["loss"])
        values.update({f"metric/{k}": float(v) for k, v in metrics.items() if f"metric/{k}" in wanted})
        missing = sorted(wanted - set(values))
        if missing:
            raise Error(f"the round asks for {missing[0]}, which the metrics of fit() do not have: return it there")
        return {key: values[key] for key in wanted}


def _fit(client: Any, parameters: List[np.ndarray], config: Dict[str, Any]) -> Tuple[Sequence[Any], int, Mapping[str, Any]]:
    returned = client.fit(parameters, config)
    if not isinstance(returned, tuple) or len(returned) != 3:
        count = f"{len(returned)} values" if isinstance(returned, tuple) else type(returned).__name__
        raise Error(f"fit returned {count}; expected (arrays, examples, metrics)")
    arrays, examples, metrics = returned
    return arrays, examples, metrics


def _parameters(client: Any) -> List[np.ndarray]:
    """The initial model; none where a NumPyClient leaves that to the server."""
    return list(client.get_parameters(config={})) if hasattr(client, "get_parameters") else []


def _unwrapped(client: Any) -> Any:
    """Flower wraps a NumPyClient in a Client by to_client()."""
    return getattr(client, "numpy_client", client)
