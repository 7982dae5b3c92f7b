"""A run's config as Python objects; str() of one is the text that `leeway run` reads.

    Config(seed=1, model=LinearRegression(), phases=[Train(rounds=30, local=LocalRule(step_size=0.1, steps=10))])

Made from proto/run.proto by docs/configuration.py; change it there. docs/configuration.md explains every field.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Dict, Optional, Sequence, Union

from leeway._textproto import Message


@dataclass
class LinearRegression(Message):
    """Linear regression: loss is the mean of 1/2 (y - w.x - b)^2, plus l2/2 (|w|^2 + b^2)."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "l2": "double",
        "intercept": "bool",
    }

    l2: Optional[float] = None
    intercept: Optional[bool] = None


@dataclass
class SoftmaxRegression(Message):
    """Multinomial logistic regression with intercept: mean cross-entropy plus l2/2 |w|^2 (intercepts included, so
    that the loss is strongly convex)."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "classes": "uint32",
        "l2": "double",
    }

    classes: Optional[int] = None
    l2: Optional[float] = None


@dataclass
class Mlp(Message):
    """Multilayer perceptron: dense layers, each but the last followed by max(x, 0). Loss is the mean cross-entropy
    plus l2/2 |w|^2. Inputs of any shape are flattened; bytes are divided by 255."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "hidden": "uint32",
        "classes": "uint32",
        "l2": "double",
    }

    hidden: Sequence[int] = ()
    classes: Optional[int] = None
    l2: Optional[float] = None


@dataclass
class Cnn(Message):
    """The paper's network for handwritten characters: two 3x3 convolutions without padding, 2x2 max pooling, a
    dense layer and the output, with max(x, 0) after both convolutions and the dense layer. 28x28 images and 62
    classes give 1,206,590 parameters. Loss is the mean cross-entropy. Images are [height, width], [height, width,
    channels] or a flattened square; bytes are divided by 255."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "classes": "uint32",
        "dropout_after_pooling": "double",
        "dropout_after_dense": "double",
        "filters": "uint32",
        "hidden": "uint32",
    }

    classes: Optional[int] = None
    dropout_after_pooling: Optional[float] = None
    dropout_after_dense: Optional[float] = None
    filters: Sequence[int] = ()
    hidden: Optional[int] = None


@dataclass
class Lstm(Message):
    """A language model that predicts the next token at every step of a sequence: embedding, LSTM layers,
    optionally a linear projection, output. Clients' x and y are tokens [examples, steps], where y[i, t] follows
    x[i, t]. Token 0 is padding: where it is the target, a step counts neither in the loss nor in the accuracy.
    Loss is the mean cross-entropy over the steps that count. Next character: embedding 8, hidden 256, 256. Next
    word: vocabulary 10004, embedding 96, hidden 670, projection 96 (4,050,748 parameters)."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "vocabulary": "uint32",
        "embedding": "uint32",
        "hidden": "uint32",
        "projection": "uint32",
    }

    vocabulary: Optional[int] = None
    embedding: Optional[int] = None
    hidden: Sequence[int] = ()
    projection: Optional[int] = None


@dataclass
class ModelTensor(Message):
    """One tensor of a model file."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "name": "string",
        "shape": "uint64",
    }

    name: Optional[str] = None
    shape: Sequence[int] = ()


@dataclass
class ModelContents(Message):
    """What a model file holds."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "tensors": ModelTensor,
        "float64": "bool",
        "sha256": "string",
    }

    tensors: Sequence[ModelTensor] = ()
    float64: Optional[bool] = None
    sha256: Optional[str] = None


@dataclass
class Model(Message):
    """The model. Exactly one kind."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "linear_regression": LinearRegression,
        "softmax_regression": SoftmaxRegression,
        "mlp": Mlp,
        "cnn": Cnn,
        "lstm": Lstm,
        "file": "string",
        "contents": ModelContents,
    }

    linear_regression: Optional[LinearRegression] = None
    softmax_regression: Optional[SoftmaxRegression] = None
    mlp: Optional[Mlp] = None
    cnn: Optional[Cnn] = None
    lstm: Optional[Lstm] = None
    file: Optional[str] = None
    contents: Optional[ModelContents] = None


@dataclass
class Cohort(Message):
    """Who takes part in a round, and when a round ends."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "clients": "uint32",
        "size": "uint32",
        "minimum_reports": "uint32",
        "deadline_seconds": "double",
        "attempts": "uint32",
        "spare": "uint32",
        "replace_after_seconds": "double",
        "return_seconds": "double",
        "gather_seconds": "double",
        "absent_after_seconds": "double",
        "closed": "bool",
    }

    clients: Optional[int] = None
    size: Optional[int] = None
    minimum_reports: Optional[int] = None
    deadline_seconds: Optional[float] = None
    attempts: Optional[int] = None
    spare: Optional[int] = None
    replace_after_seconds: Optional[float] = None
    return_seconds: Optional[float] = None
    gather_seconds: Optional[float] = None
    absent_after_seconds: Optional[float] = None
    closed: Optional[bool] = None


@dataclass
class Optimum(Message):
    """Finds w* = argmin F from exact federated sums of loss and gradient by L-BFGS on the server; every evaluation
    is one round with all clients."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "tolerance": "double",
        "max_rounds": "uint32",
        "gradient_scale": "double",
    }

    tolerance: Optional[float] = None
    max_rounds: Optional[int] = None
    gradient_scale: Optional[float] = None


@dataclass
class Probe(Message):
    """Measures the average drift at a point: clients take max(steps) local steps once and report at every listed
    number of steps."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "point": ("POINT_UNSPECIFIED", "INITIAL", "OPTIMUM", "CURRENT"),
        "step_size": "double",
        "auto_step_size": "bool",
        "steps": "uint32",
        "batch_size": "uint32",
        "clients": "uint32",
        "groups": "uint32",
        "repeats": "uint32",
    }

    point: Optional[str] = None
    step_size: Optional[float] = None
    auto_step_size: Optional[bool] = None
    steps: Sequence[int] = ()
    batch_size: Optional[int] = None
    clients: Optional[int] = None
    groups: Optional[int] = None
    repeats: Optional[int] = None


@dataclass
class AutoSteps(Message):
    """Local steps by what they achieve: from `largest` on, half as many whenever a round lowers the loss by less
    than one gradient step guarantees, eta/2 |grad F|^2. So training gets the speed of many local steps without the
    plateau that they end on where clients disagree. Costs one more vector per report, the gradient. Needs plain
    averaging at the server."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "largest": "uint32",
    }

    largest: Optional[int] = None


@dataclass
class FedProx(Message):
    """FedProx (Li et al. 2018): local steps descend F_c(x) + mu/2 |x - w|^2, where w is the global model, so that
    local models stay near it."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "mu": "double",
    }

    mu: Optional[float] = None


@dataclass
class Scaffold(Message):
    """SCAFFOLD (Karimireddy et al. 2019, option II): every local step is corrected by the difference between the
    global control variate c and the client's own c_i, so that clients that disagree do not drift apart. Clients
    keep c_i between rounds (leeway-client --state)."""

    KINDS: ClassVar[Dict[str, Any]] = {
    }



@dataclass
class FedNova(Message):
    """FedNova (Wang et al. 2020): each client's displacement is divided by its number of local steps before it is
    averaged, and the average multiplied by the mean number of steps. So clients that take more steps (`epochs`
    over more examples) do not pull the model towards their own optimum. Where all take the same number it is
    FedAvg."""

    KINDS: ClassVar[Dict[str, Any]] = {
    }



@dataclass
class FedDyn(Message):
    """FedDyn (Acar et al. 2021): local steps descend F_c(x) - g_c.x + alpha/2 |x - w|^2, where w is the global
    model and the client keeps g_c between rounds (leeway-client --state), g_c <- g_c - alpha (x - w). The model
    moves on by the mean of all that clients have moved, so that it settles at w* whatever their data are."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "alpha": "double",
    }

    alpha: Optional[float] = None


@dataclass
class LocalRule(Message):
    """How a client moves from the model it was given."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "step_size": "double",
        "auto_step_size": "bool",
        "steps": "uint32",
        "epochs": "uint32",
        "batch_size": "uint32",
        "auto_steps": AutoSteps,
        "fedprox": FedProx,
        "scaffold": Scaffold,
        "fednova": FedNova,
        "feddyn": FedDyn,
    }

    step_size: Optional[float] = None
    auto_step_size: Optional[bool] = None
    steps: Optional[int] = None
    epochs: Optional[int] = None
    batch_size: Optional[int] = None
    auto_steps: Optional[AutoSteps] = None
    fedprox: Optional[FedProx] = None
    scaffold: Optional[Scaffold] = None
    fednova: Optional[FedNova] = None
    feddyn: Optional[FedDyn] = None


@dataclass
class Adam(Message):
    """FedAdam (Reddi et al. 2020): m <- beta1 m + (1 - beta1) u, v <- beta2 v + (1 - beta2) u^2, w <- w - rate m /
    (sqrt(v) + epsilon), where u is the average displacement. Without bias correction; v starts as epsilon^2."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "beta1": "double",
        "beta2": "double",
        "epsilon": "double",
    }

    beta1: Optional[float] = None
    beta2: Optional[float] = None
    epsilon: Optional[float] = None


@dataclass
class Adagrad(Message):
    """FedAdagrad (Reddi et al. 2020): like FedAdam, with v <- v + u^2."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "beta1": "double",
        "epsilon": "double",
    }

    beta1: Optional[float] = None
    epsilon: Optional[float] = None


@dataclass
class Yogi(Message):
    """FedYogi (Reddi et al. 2020): like FedAdam, with v <- v - (1 - beta2) u^2 sign(v - u^2)."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "beta1": "double",
        "beta2": "double",
        "epsilon": "double",
    }

    beta1: Optional[float] = None
    beta2: Optional[float] = None
    epsilon: Optional[float] = None


@dataclass
class ServerOptimizer(Message):
    """What the server does with the average displacement."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "rate": "double",
        "momentum": "double",
        "adam": Adam,
        "adagrad": Adagrad,
        "yogi": Yogi,
        "nesterov": "bool",
    }

    rate: Optional[float] = None
    momentum: Optional[float] = None
    adam: Optional[Adam] = None
    adagrad: Optional[Adagrad] = None
    yogi: Optional[Yogi] = None
    nesterov: Optional[bool] = None


@dataclass
class ReleaseTest(Message):
    """The release test, for networks as for convex models. From the same model, one branch takes `rounds` rounds
    of H local steps, the other the same number of steps with the models averaged after every step; then every
    client evaluates both ends. If heterogeneity holds training back, the second branch is released and its loss
    falls below. Test where training has settled. The current model stays as it is. It takes rounds x (sum of steps
    + largest of steps) steps."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "point": ("POINT_UNSPECIFIED", "INITIAL", "OPTIMUM", "CURRENT"),
        "steps": "uint32",
        "step_size": "double",
        "auto_step_size": "bool",
        "rounds": "uint32",
        "batch_size": "uint32",
        "clients": "uint32",
        "repeats": "uint32",
        "constant_loss": "double",
        "who_pays_off": "bool",
    }

    point: Optional[str] = None
    steps: Sequence[int] = ()
    step_size: Optional[float] = None
    auto_step_size: Optional[bool] = None
    rounds: Optional[int] = None
    batch_size: Optional[int] = None
    clients: Optional[int] = None
    repeats: Optional[int] = None
    constant_loss: Optional[float] = None
    who_pays_off: Optional[bool] = None


@dataclass
class Train(Message):
    """T rounds of FedAvg."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "rounds": "uint32",
        "local": LocalRule,
        "server": ServerOptimizer,
        "start": ("POINT_UNSPECIFIED", "INITIAL", "OPTIMUM", "CURRENT"),
        "drift_every": "uint32",
        "drift_off": "bool",
        "probe": Probe,
        "probe_at": "uint32",
        "evaluate_every": "uint32",
        "metrics": "string",
        "release": ReleaseTest,
        "release_at": "uint32",
        "loss_every": "uint32",
        "loss_off": "bool",
    }

    rounds: Optional[int] = None
    local: Optional[LocalRule] = None
    server: Optional[ServerOptimizer] = None
    start: Optional[str] = None
    drift_every: Optional[int] = None
    drift_off: Optional[bool] = None
    probe: Optional[Probe] = None
    probe_at: Sequence[int] = ()
    evaluate_every: Optional[int] = None
    metrics: Sequence[str] = ()
    release: Optional[ReleaseTest] = None
    release_at: Sequence[int] = ()
    loss_every: Optional[int] = None
    loss_off: Optional[bool] = None


@dataclass
class Evaluate(Message):
    """Loss and accuracy on every client's test part, without training."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "point": ("POINT_UNSPECIFIED", "INITIAL", "OPTIMUM", "CURRENT"),
        "percentiles": "double",
        "fine_tune": LocalRule,
        "fine_tune_tensors": "string",
    }

    point: Optional[str] = None
    percentiles: Sequence[float] = ()
    fine_tune: Optional[LocalRule] = None
    fine_tune_tensors: Sequence[str] = ()


@dataclass
class Constants(Message):
    """Measures what the theory asks for: L and mu of the global loss, the largest L and smallest mu of any client,
    and the Hessian dissimilarity beta. From exact Hessians for models with at most 256 parameters, else by Lanczos
    iteration on differences of exact federated gradients (then without beta)."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "point": ("POINT_UNSPECIFIED", "INITIAL", "OPTIMUM", "CURRENT"),
        "iterations": "uint32",
        "dissimilarity_iterations": "uint32",
    }

    point: Optional[str] = None
    iterations: Optional[int] = None
    dissimilarity_iterations: Optional[int] = None


@dataclass
class FixedPoint(Message):
    """Runs the FedAvg map from w* to where it comes to rest, for each number of local steps, with Anderson
    acceleration on the server, and measures the loss there."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "steps": "uint32",
        "step_size": "double",
        "auto_step_size": "bool",
        "tolerance": "double",
        "max_rounds": "uint32",
        "after_rounds": "uint32",
        "who_pays_off": "bool",
    }

    steps: Sequence[int] = ()
    step_size: Optional[float] = None
    auto_step_size: Optional[bool] = None
    tolerance: Optional[float] = None
    max_rounds: Optional[int] = None
    after_rounds: Optional[int] = None
    who_pays_off: Optional[bool] = None


@dataclass
class Phase(Message):
    """One step of the script."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "optimum": Optimum,
        "probe": Probe,
        "train": Train,
        "evaluate": Evaluate,
        "constants": Constants,
        "fixed_point": FixedPoint,
        "release": ReleaseTest,
    }

    optimum: Optional[Optimum] = None
    probe: Optional[Probe] = None
    train: Optional[Train] = None
    evaluate: Optional[Evaluate] = None
    constants: Optional[Constants] = None
    fixed_point: Optional[FixedPoint] = None
    release: Optional[ReleaseTest] = None


@dataclass
class Limits(Message):
    """What the server accepts of a client."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "max_norm": "double",
        "norm_policy": ("REFUSE", "CLIP"),
        "quarantine_after": "uint32",
        "upload_seconds": "double",
        "median_multiple": "double",
    }

    max_norm: Optional[float] = None
    norm_policy: Optional[str] = None
    quarantine_after: Optional[int] = None
    upload_seconds: Optional[float] = None
    median_multiple: Optional[float] = None


@dataclass
class Initial(Message):
    """The model that a run starts from."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "file": "string",
        "sha256": "string",
    }

    file: Optional[str] = None
    sha256: Optional[str] = None


@dataclass
class RunConfig(Message):
    """One run: a model, the clients that train it, and a script of phases. Written by the user as a text proto;
    see experiments/ for examples."""

    KINDS: ClassVar[Dict[str, Any]] = {
        "name": "string",
        "seed": "uint64",
        "model": Model,
        "weighting": ("UNIFORM", "EXAMPLES"),
        "cohort": Cohort,
        "max_update": "double",
        "phases": Phase,
        "durability": ("FULL", "RELAXED"),
        "harmless_below": "double",
        "conflict_above": "double",
        "limits": Limits,
        "encoding": ("EXACT", "BFLOAT16_WIRE", "INT8_WIRE"),
        "harmless_lost": "double",
        "conflict_lost": "double",
        "initial": Initial,
        "baseline": "string",
    }

    name: Optional[str] = None
    seed: Optional[int] = None
    model: Optional[Union[Model, LinearRegression, SoftmaxRegression, Mlp, Cnn, Lstm]] = None
    weighting: Optional[str] = None
    cohort: Optional[Cohort] = None
    max_update: Optional[float] = None
    phases: Sequence[Union[Phase, Optimum, Probe, Train, Evaluate, Constants, FixedPoint, ReleaseTest]] = ()
    durability: Optional[str] = None
    harmless_below: Optional[float] = None
    conflict_above: Optional[float] = None
    limits: Optional[Limits] = None
    encoding: Optional[str] = None
    harmless_lost: Optional[float] = None
    conflict_lost: Optional[float] = None
    initial: Optional[Initial] = None
    baseline: Optional[str] = None


Config = RunConfig
