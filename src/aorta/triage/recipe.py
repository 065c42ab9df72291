"""The recipe as a file: read strictly, with names resolved, and written so that it reads again."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Discriminator, Field, Tag, field_validator, model_validator

from aorta.core.documents import (
    Count,
    DocumentModel,
    Seconds,
    Text,
    Variables,
    dump_yaml,
    validated,
)
from aorta.core.errors import AortaError, SpecError, UsageError
from aorta.core.names import LONGEST_NAME, is_path_safe
from aorta.core.trial import Environment, RuntimeKind
from aorta.registry.catalogue import Catalogue
from aorta.registry.documents import load_document
from aorta.registry.environments import INLINE_IMAGE, environment_catalogue, stack_mitigations
from aorta.registry.mitigation import Mitigation
from aorta.registry.mitigations import mitigation_catalogue
from aorta.registry.sidecars import sidecars_beside
from aorta.workloads.base import COMMAND, RESERVED_PREFIX

SCHEMA_VERSION = 1
DEFAULT_THRESHOLD = 1.15
RESERVED_CELL_NAMES = frozenset({".", "..", "matrix.md", "matrix.json"})
FLAG_MODE = "(flags)"


Names = Annotated[tuple[str, ...], Field(min_length=1)]


def checked_cell_name(name: str) -> str:
    """A cell's name is a directory and an option's value: no slash, space, leading dash."""
    if not is_path_safe(name) or name in RESERVED_CELL_NAMES:
        raise UsageError(
            f"{name!r} cannot name a cell; expected letters, digits, _ . and -, at most "
            f"{LONGEST_NAME} of them, beginning with a letter, digit or _, and none of "
            f"{', '.join(sorted(RESERVED_CELL_NAMES))}"
        )
    return name


def _config(value: dict[str, Any]) -> dict[str, Any]:
    for key in value:
        if key == "steps" or key.startswith(RESERVED_PREFIX):
            raise UsageError(
                f"the key {key!r} is not for workload_config; steps has its own key, "
                f"and names that begin with {RESERVED_PREFIX} are reserved"
            )
    return value


Config = Annotated[dict[str, Any], AfterValidator(_config)]


class InlineImage(DocumentModel):
    """`{docker: REF}`: an image without any definition."""

    docker: Text

    @property
    def environment_name(self) -> str:
        digest = hashlib.blake2b(self.docker.encode(), digest_size=4).hexdigest()
        return f"_inline_{digest}"


_IMAGE = (Mapping, InlineImage)


class Confound(DocumentModel):
    threshold: float = Field(default=DEFAULT_THRESHOLD, gt=0, allow_inf_nan=False)
    baseline_cell: str | None = None


class Cell(DocumentModel):
    name: Annotated[str, AfterValidator(checked_cell_name)]
    mitigations: Names
    environment: Annotated[
        Annotated[Text, Tag("tag:name")] | Annotated[InlineImage, Tag("tag:image")],
        Discriminator(lambda place: f"tag:{'image' if isinstance(place, _IMAGE) else 'name'}"),
    ]
    extra_env: Variables = Field(default_factory=dict)
    workload_config: Config = Field(default_factory=dict)
    trials: Count | None = None
    steps: Count | None = None

    @property
    def environment_name(self) -> str:
        place = self.environment
        return place if isinstance(place, str) else place.environment_name


class RecipeFile(DocumentModel):
    """Every key of a recipe. `workload` and its config may be left to the command line."""

    schema_version: Annotated[int, Field(ge=SCHEMA_VERSION, le=SCHEMA_VERSION)]
    ticket: Text | None = None
    workload: Text
    trials: Count
    steps: Count | None = None
    workload_config: Config = Field(default_factory=dict)
    extra_env: Variables = Field(default_factory=dict)
    timeout: Seconds = None
    save_logs: bool = True
    warm: bool = False  # as --warm
    confound: Confound = Confound()
    cells: Annotated[tuple[Cell, ...], Field(min_length=1)]

    @field_validator("cells")
    @classmethod
    def _named_once(cls, cells: tuple[Cell, ...]) -> tuple[Cell, ...]:
        names = [cell.name for cell in cells]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise UsageError(f"the name {twice[0]!r} stands twice; cells need names of their own")
        return cells

    @model_validator(mode="after")
    def _whole(self) -> "RecipeFile":
        if self.workload != COMMAND and self.steps is None:
            raise UsageError("the key steps is required for a workload; only a command has none")
        wanted = self.confound.baseline_cell
        names = [cell.name for cell in self.cells]
        if wanted is not None and wanted not in names:
            raise UsageError(
                f"confound.baseline_cell names no cell: found {wanted!r}, "
                f"expected one of: {', '.join(names)}"
            )
        return self


@dataclass(frozen=True)
class Recipe:
    """A sound recipe and where it came from; `sidecars` resolved its names."""

    content: RecipeFile
    source: Path | None = None  # None: flags
    sha256: str | None = None
    sidecars: tuple[Path, ...] = ()
    base: Path = Path()  # relative paths in workload_config lie here

    @property
    def file(self) -> str:
        return str(self.source) if self.source else FLAG_MODE

    @cached_property
    def mitigations(self) -> Catalogue[Mitigation]:
        """Gathered once: a look takes 10 ms, and a matrix has hundreds of cells."""
        return mitigation_catalogue(self.sidecars)

    @cached_property
    def environments(self) -> Catalogue[Environment]:
        return environment_catalogue(self.sidecars)

    def environment_of(self, cell: Cell) -> Environment:
        if isinstance(cell.environment, InlineImage):
            return Environment(
                cell.environment_name,
                kind=RuntimeKind.DOCKER,
                image=cell.environment.docker,
                source="inline",
            )
        return self.environments.get(cell.environment)


def load_recipe(
    path: Path, sidecar_files: Sequence[Path] = (), command: Mapping[str, Any] | None = None
) -> Recipe:
    """The recipe in a YAML or JSON file, by default with the sidecars that its run left beside it;
    `command` is the `workload_config` of one behind `--`.
    """
    document = load_document(path, "json" if path.suffix.lower() == ".json" else "yaml")
    if command and isinstance(document, dict):
        if document.setdefault("workload", COMMAND) != COMMAND:
            raise SpecError(
                f"found {document['workload']!r} beside a command behind --; "
                f"expected workload: {COMMAND}, or no workload",
                where=f"{path}: workload",
            )
        document["workload_config"] = {**(document.get("workload_config") or {}), **command}
    content = validated(RecipeFile, document, file=str(path))
    recipe = Recipe(
        content,
        source=path,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        sidecars=unique_files(sidecar_files) or sidecars_beside(path),
        base=path.resolve().parent,
    )
    check_names(recipe)
    return recipe


def unique_files(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Each file once, by where it really lies."""
    return tuple(dict.fromkeys(path.resolve() for path in paths))


def check_names(recipe: Recipe) -> None:
    """Every mitigation and environment exists, and no stack of mitigations contradicts itself."""
    # Both here: what is wrong with the files is no cell's fault.
    mitigations, _ = recipe.mitigations, recipe.environments
    for index, cell in enumerate(recipe.content.cells):
        where = f"{recipe.file}: cells[{index}]"
        try:
            bundles = [(name, mitigations.get(name).env) for name in cell.mitigations]
            recipe.environment_of(cell)
            stack_mitigations(bundles, decided={**recipe.content.extra_env, **cell.extra_env})
        except AortaError as wrong:
            words = wrong.message if wrong.where is None else str(wrong)
            raise SpecError(f"cell {cell.name!r}: {words}", where=where) from None


def resolved_yaml(recipe: Recipe) -> str:
    """The recipe as it ran, in a recipe's keys: `load_recipe` reads it back as the same."""
    content = recipe.content.model_dump(exclude_defaults=True, mode="json")
    content["schema_version"] = SCHEMA_VERSION
    if recipe.content.workload == COMMAND:
        _make_cwd_absolute(content.setdefault("workload_config", {}), recipe.base, default=".")
        for cell in content["cells"]:
            _make_cwd_absolute(cell.get("workload_config", {}), recipe.base)
    return dump_yaml({key: content[key] for key in RecipeFile.model_fields if key in content})


def _make_cwd_absolute(config: dict[str, Any], base: Path, default: str | None = None) -> None:
    """A relative path would mean another place once the recipe lies in a run directory."""
    cwd = config.get("cwd", default)
    if isinstance(cwd, str):
        config["cwd"] = str((base / Path(cwd).expanduser()).resolve())


def image_of(axis_value: str) -> str | InlineImage:
    """`image:REF` of the command line, or the name of an environment."""
    if not axis_value.startswith(INLINE_IMAGE):
        return axis_value
    reference = axis_value.removeprefix(INLINE_IMAGE)
    if not reference or any(character.isspace() for character in reference):
        raise UsageError(f"{axis_value!r} names no image; expected image:REPOSITORY[:TAG|@DIGEST]")
    return InlineImage(docker=reference)
