"""Finding a GPU model by any name it goes by.

Two questions, two functions. A *request* may leave words out: ``resolve("a100")`` is the set of
all A100s, ``resolve("a100-80gb")`` the PCIe and the SXM4 one. What a *device or cloud reports* is
one model: ``identify("NVIDIA A100-SXM4-80GB")``; a name that leaves words out and so could be
several is refused there, never guessed, unless the reported memory settles it.
"""

from __future__ import annotations

import difflib
import functools
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from types import MappingProxyType

from hybrid.hardware import datacenter, graphics
from hybrid.hardware.model import GpuModel, satisfies_memory

REFERENCE_KEY = "a100-sxm4-80gb"
"""The GPU whose speed is 1.0."""


class UnknownGpuModel(LookupError):
    """No model, or no single model, goes by ``name``. ``nearest`` are the likeliest names."""

    def __init__(self, name: str, nearest: tuple[str, ...] = ()) -> None:
        self.name = name
        self.nearest = nearest
        hint = f"; nearest: {', '.join(nearest)}" if nearest else ""
        super().__init__(f"no GPU model is called {name!r}{hint}")


class AmbiguousGpuModel(UnknownGpuModel):
    """``name`` could be any of ``nearest``; say which."""

    def __init__(self, name: str, candidates: tuple[str, ...]) -> None:
        super().__init__(name, candidates)
        self.args = (f"{name!r} could be any of {', '.join(candidates)}: say which",)


@dataclass(frozen=True, slots=True)
class ProductLabel:
    """What a ``nvidia.com/gpu.product`` node label of GPU Feature Discovery says.

    ``mig_profile`` is set under the ``single`` MIG strategy, ``shared`` when the device is
    time-sliced or under MPS.
    """

    model: GpuModel
    mig_profile: str | None
    shared: bool


def _words(name: str) -> str:
    """``name`` as lower-case words joined by ``-``."""
    return re.sub(r"[^a-z0-9]+", "-", name.strip().lower()).strip("-")


def _without_maker(words: str) -> str:
    """``words`` without brand names that never tell two models apart ("quadro", "rtx" do)."""
    return re.sub(r"^(?:nvidia-)?(?:tesla-|geforce-)?", "", words)


def _by_key(models: Iterable[GpuModel]) -> dict[str, GpuModel]:
    keys: dict[str, GpuModel] = {}
    for model in models:
        if model.key in keys:
            raise ValueError(f"two GPU models have the key {model.key}")
        keys[model.key] = model
    return keys


MODELS = MappingProxyType(_by_key((*datacenter.MODELS, *graphics.MODELS)))
"""Every model by key."""


def _exact_names() -> dict[str, frozenset[str]]:
    """Names that say all there is to say. A name two models report (NVML calls both RTX 3080s the
    same) keeps both."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for model in MODELS.values():
        for name in (model.name, *model.nvml_names, *model.aliases):
            names[_words(name)].add(model.key)
    for key in MODELS:  # a key beats whatever else shares its words
        names[key] = {key}
    return {name: frozenset(keys) for name, keys in names.items()}


def _family_names() -> dict[str, frozenset[str]]:
    """Names that leave form or memory out."""
    names: defaultdict[str, set[str]] = defaultdict(set)
    for model in MODELS.values():
        forms = {model.form, model.form.rstrip("0123456789")} - {""}
        names[model.family].add(model.key)
        names[f"{model.family}-{model.size}"].add(model.key)
        for form in forms:
            names[f"{model.family}-{form}"].add(model.key)
            names[f"{model.family}-{form}-{model.size}"].add(model.key)
            names[f"{model.family}-{model.size}-{form}"].add(model.key)
    return {name: frozenset(keys) for name, keys in names.items()}


_EXACT = _exact_names()
_FAMILIES = _family_names()
_SHORT_EXACT = {_without_maker(name): keys for name, keys in sorted(_EXACT.items())}


def _keys(name: str, *, short_is_family: bool) -> frozenset[str]:
    """Keys behind ``name``; raises UnknownGpuModel.

    With the maker's name a family's name may be one model ("NVIDIA H200" is the SXM5 one), so
    names are tried as written first, and without the maker after that.
    """
    words = _words(name)
    short = _without_maker(words)
    families = _FAMILIES if short_is_family else {}
    for found in (
        frozenset({words}) if words in MODELS else None,
        families.get(words),
        _EXACT.get(words),
        _FAMILIES.get(short),
        _SHORT_EXACT.get(short),
    ):
        if found:
            return found
    raise UnknownGpuModel(name, nearest_names(name))


def gpu_model(key: str) -> GpuModel:
    """The model with exactly this key; raises UnknownGpuModel."""
    try:
        return MODELS[key]
    except KeyError:
        raise UnknownGpuModel(key, nearest_names(key)) from None


def resolve(name: str) -> frozenset[str]:
    """Keys of every model that a request for ``name`` accepts; raises UnknownGpuModel.

    A full name (``NVIDIA A100-SXM4-80GB``, ``a100-sxm4-80gb``) is that model; a shorter one
    (``a100``, ``a100-80gb``, ``h100-sxm``) is every model it describes. The maker's name in front
    makes a device name of it: ``NVIDIA H200`` is the SXM5 one, ``h200`` is both. What people leave
    out in writing is forgiven where only one thing can be meant: ``rtx4090``, ``a6000``,
    ``a100-80g``.
    """
    try:
        return _keys(name, short_is_family=True)
    except UnknownGpuModel:
        short = _without_maker(_words(name)).removesuffix("-vws")
        found = _loose().get(_squeezed(short))
        if found is None:
            raise
        return found


def _squeezed(words: str) -> str:
    """The words in one, with ``80g`` written out."""
    return re.sub(r"(?<=\d)g(?=-|$)", "gb", words).replace("-", "")


@functools.cache
def _loose() -> dict[str, frozenset[str]]:
    """Names written in one, with and without their ``rtx``; those that could be either of two
    things are none."""
    meant: defaultdict[str, set[frozenset[str]]] = defaultdict(set)
    for name, keys in {**_SHORT_EXACT, **_FAMILIES}.items():
        for short in {name, name.removeprefix("rtx-")}:
            meant[_squeezed(short)].add(keys)
    return {name: next(iter(sets)) for name, sets in sorted(meant.items()) if len(sets) == 1}


def identify(name: str, memory_mib: float | None = None) -> GpuModel:
    """The one model that a device, node label or cloud calls ``name``.

    ``memory_mib`` (the reported total) decides between variants that report one name. Raises
    AmbiguousGpuModel when several remain, UnknownGpuModel when there is none.
    """
    keys = _keys(_LABEL_SUFFIX.sub("", name.strip()), short_is_family=False)
    models = [MODELS[key] for key in sorted(keys)]
    if len(models) > 1 and memory_mib is not None:
        models = _of_memory(models, memory_mib / 1024)
    if len(models) != 1:
        raise AmbiguousGpuModel(name, tuple(sorted(keys)))
    return models[0]


_LABEL_SUFFIX = re.compile(
    r"(?:-MIG-(?P<profile>(?:\d+c\.)?\d+g\.\d+gb(?:[+.](?:me\.all|me|gfx)|-me)?))?"
    r"(?P<shared>-SHARED)?$"
)


def identify_label(label: str, memory_mib: float | None = None) -> ProductLabel:
    """What a ``nvidia.com/gpu.product`` label says; raises as ``identify``.

    ``NVIDIA-A100-SXM4-40GB-MIG-1g.5gb`` and ``Tesla-T4-SHARED`` carry more than the model. Under
    MIG ``memory_mib`` is that of the slice, so it is not used there.
    """
    suffix = _LABEL_SUFFIX.search(label.strip())
    profile = suffix.group("profile") if suffix else None
    shared = bool(suffix and suffix.group("shared"))
    model = identify(label, None if profile else memory_mib)
    if profile is not None:  # a label has no "+"
        profile = re.sub(r"(?<=gb)\.", "+", profile)
    return ProductLabel(model, profile, shared)


_EC2_NAMES = MappingProxyType(
    {
        # EC2 says chip and memory; the form is that of the machines it is sold in
        "K80": ("k80",),
        "M60": ("m60",),
        "V100": ("v100-sxm2-16gb", "v100-sxm2-32gb"),
        "A100": ("a100-sxm4-40gb", "a100-sxm4-80gb"),
        "H100": ("h100-sxm5-80gb",),
        "H200": ("h200-sxm5-141gb",),
        "B200": ("b200-sxm6-180gb", "gb200-186gb"),
        "B300": ("b300-sxm6-288gb",),
        "GB200": ("gb200-186gb",),
        "GB300": ("gb300-288gb",),
        "T4": ("t4",),
        "T4g": ("t4g",),
        "A10G": ("a10g",),
        "L4": ("l4",),
        "L40S": ("l40s",),
        "RTX PRO 4500": ("rtx-pro-4500-server",),
        "RTX PRO Server 6000": ("rtx-pro-6000-server",),
    }
)


def identify_ec2(name: str, memory_mib: float) -> GpuModel:
    """The model behind ``GpuInfo.Gpus[].Name`` and ``.MemoryInfo.SizeInMiB`` of EC2's
    DescribeInstanceTypes; raises UnknownGpuModel.

    EC2 counts some sizes in 10^9 bytes (an A10G has "22888 MiB"), so the size only picks the
    nearest variant; take usable memory from the model.
    """
    keys = _EC2_NAMES.get(name)
    if keys is None:
        raise UnknownGpuModel(name, nearest_names(name, _EC2_NAMES))
    models = [MODELS[key] for key in keys]
    return min(models, key=lambda m: (abs(m.usable_memory_gib - memory_mib / 1024), m.key))


_GCE_NAMES = MappingProxyType(
    {
        "nvidia-tesla-k80": "k80",
        "nvidia-tesla-p4": "p4",
        "nvidia-tesla-p100": "p100-pcie-16gb",
        "nvidia-tesla-v100": "v100-sxm2-16gb",
        "nvidia-tesla-t4": "t4",
        "nvidia-tesla-a100": "a100-sxm4-40gb",
        "nvidia-a100-80gb": "a100-sxm4-80gb",
        "nvidia-l4": "l4",
        "nvidia-h100-80gb": "h100-sxm5-80gb",
        "nvidia-h100-mega-80gb": "h100-sxm5-80gb",
        "nvidia-h200-141gb": "h200-sxm5-141gb",
        "nvidia-b200": "b200-sxm6-180gb",
        "nvidia-b300": "b300-sxm6-288gb",
        "nvidia-gb200": "gb200-186gb",
        "nvidia-gb300": "gb300-288gb",
        "nvidia-rtx-pro-6000": "rtx-pro-6000-server",
    }
)


def identify_gce(accelerator: str) -> GpuModel:
    """The model behind a Compute Engine accelerator type, with or without its URL, and with the
    ``-vws`` of a virtual workstation dropped; raises UnknownGpuModel."""
    short = accelerator.rsplit("/", 1)[-1].removesuffix("-vws")
    key = _GCE_NAMES.get(short)
    if key is None:
        raise UnknownGpuModel(accelerator, nearest_names(short, _GCE_NAMES))
    return MODELS[key]


def nearest_names(name: str, among: Iterable[str] | None = None) -> tuple[str, ...]:
    """Up to three known names that look most like ``name``, likeliest first: those that hold all
    its words ("RTX 6000": Quadro, Ada and PRO), then those spelled most like it."""
    names = sorted({*MODELS, *_FAMILIES} if among is None else among)
    wanted = _without_maker(_words(name)) if among is None else name
    words = set(wanted.split("-"))
    holding = [known for known in names if words <= set(known.split("-"))]
    holding.sort(key=lambda known: (len(known), known))
    spelled = difflib.get_close_matches(wanted, names, n=3, cutoff=0.5)
    return tuple(dict.fromkeys((*holding, *spelled)))[:3]


def _of_memory(models: list[GpuModel], gib: float) -> list[GpuModel]:
    """Those whose usable memory is ``gib`` within what ECC and drivers change, nearest only."""
    fitting = [m for m in models if satisfies_memory(gib, m.usable_memory_gib * 15 / 16)]
    if not fitting:
        return []
    nearest = min(abs(m.usable_memory_gib - gib) for m in fitting)
    return [m for m in fitting if abs(m.usable_memory_gib - gib) == nearest]
