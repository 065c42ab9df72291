"""Version sets inside containers: one image each, made once from the bisection container, which has
every commit that the search will need. A build of the same versions of the packages before it is
used again.
"""

import hashlib
import json
import shlex
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from aorta.bisect.containers.image import CACHE_OPTION, ImageContents, ImageReader, plugin_words
from aorta.bisect.package import (
    Package,
    Versions,
    export_lines,
    in_place_variables,
    set_key,
    version_script,
    version_words,
)
from aorta.bisect.run import BisectRun
from aorta.bisect.spec import BisectSpec, ContainersSpec, PackageSpec
from aorta.bisect.trials import (
    OUTPUT_MOUNT,
    PreparedTest,
    ProbedCommand,
    VersionSets,
    build_step,
    exports,
    in_shell,
    is_secret,
    on_this_machine,
    own_places,
    run_step,
    shown_words,
)
from aorta.core.errors import AortaError, InfrastructureError, UsageError
from aorta.core.trial import LOCAL, Environment, RuntimeKind, TrialEnd, TrialSpec
from aorta.runtimes.containers import options_of_run
from aorta.runtimes.engine import ENGINES, ask, client_of, image_named
from aorta.runtimes.git import Repository, without_secrets
from aorta.runtimes.image_job import SAVING, ImageJob, ImageStep, is_made
from aorta.runtimes.launch import IMAGES_WORKDIR, ONCE, image_options

WORKLOAD = "WORKLOAD"  # the package whose version only a plugin is told
_TAG = "aorta-bisect"
_ORDERED = "made.txt"  # the images of this run, each written down before it is made


@dataclass(frozen=True)
class BaseImage:
    """The bisection container: `image` was made with `versions` and has every commit. The script
    `fetch` brought those that it lacked; `remotes` are its variables.
    """

    environment: Environment
    image: str
    versions: Versions
    fetch: str = ""
    remotes: Mapping[str, str] = field(default_factory=dict)


@dataclass(eq=False)
class Images(VersionSets):
    """Version sets in containers. `root` holds job files, build logs and pyxis' images."""

    base: BaseImage
    spec: BisectSpec
    bazel_cache: str | None

    def __post_init__(self) -> None:
        cache = self.bazel_cache
        self._containers = self.spec.containers or ContainersSpec()
        self._cache_option = {CACHE_OPTION: f"--bazel-cache={cache}" if cache else ""}
        self._build_env = {**self._cache_option, **self.spec.env}

    def _prepared(self, trial: TrialSpec, versions: Versions) -> PreparedTest:
        key = self._key(versions)
        target = self._target(key)
        env = {**in_place_variables(self.packages, versions), **trial.env}
        test = replace(trial, env=env, environment=replace(trial.environment, image=target))
        if self._containers.plugin:
            output = trial.trial_dir.absolute()
            words = plugin_words(self._pushed(key) or target, output, versions.get(WORKLOAD))
            test = replace(trial, argv=(*trial.argv, *words), env=env, environment=LOCAL)
        step = None
        place = self.base.environment
        if not is_made(place.kind, place.options, target):
            steps, push = self._steps(versions), self._pushed(key)
            job = _image_job(self.base, steps, self.root, self._build_env, push)
            step = self._build(job, key)
        return PreparedTest(key, step, test, version_words(self.packages, versions))

    def _pushed(self, key: str) -> str | None:
        """The name under which a plugin's image is pushed, where a registry is named."""
        registry = self._containers.registry
        if not registry:
            return None
        return f"{registry}{'' if ':' in registry.rpartition('/')[2] else ':'}{key}"

    def _target(self, key: str) -> str:
        if self.base.environment.kind is RuntimeKind.PYXIS:
            return str(self.root.absolute() / f"{key}.sqsh")
        return f"{_TAG}:{key}"

    def _layers(self) -> list[Sequence[Package]]:
        """The packages in order, cut behind each build whose result can be used again."""
        layers: list[Sequence[Package]] = []
        start = 0
        for end in range(1, len(self.packages)):
            before, behind = self.packages[:end], self.packages[end:]
            needed = {name for package in before for name in package.spec.needs}
            is_kept = before[-1].spec.build and any(package.moves for package in behind)
            if is_kept and needed.isdisjoint(package.name for package in behind):
                layers.append(self.packages[start:end])
                start = end
        return [*layers, self.packages[start:]]

    def _steps(self, versions: Versions) -> list[ImageStep]:
        """A layer each; the last one is the version set."""
        steps = []
        done: list[Package] = []
        for packages in self._layers():
            done += packages
            script = version_script(
                packages, versions, done, lambda package: self._must_build(package, versions)
            )
            steps.append(ImageStep(self._target(self._key(versions, done)), script))
        return steps

    def shown(self, versions: Versions) -> str:
        """The state as a command for people."""
        base, key = self.base, self._key(versions)
        scripts = [step.script for step in self._steps(versions)]
        recipe = BuildRecipe(
            "\n".join([base.fetch, *scripts]).strip(),
            {**base.remotes, **{n: value for n, value in self._cache_option.items() if value}},
            in_place_variables(self.packages, versions),
            self._pushed(key) or self._target(key),
            versions.get(WORKLOAD),
        )
        image = str(base.environment.image or base.image)
        return shown_side(self._containers, image, self.command, recipe)

    def _must_build(self, package: Package, versions: Versions) -> bool:
        """A package that says so is rebuilt only if it, or what it needs, has changed."""
        if package.spec.rebuild == "always":
            return True
        names = (package.name, *package.spec.needs)
        return any(versions[name] != self.base.versions.get(name) for name in names)

    def _key(self, versions: Versions, packages: Sequence[Package] | None = None) -> str:
        """Of this run alone: another one may be removing its own images by now."""
        content = [
            str(self.root.absolute()),
            self.base.image,
            set_key(packages or self.packages, versions),
            sorted(self._build_env.items()),
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:16]


def remove_images(root: Path, environment: Environment) -> None:
    """The images of a run; containers made from them are gone by then."""
    if environment.kind not in ENGINES:
        for file in root.glob("*.sqsh"):
            file.unlink(missing_ok=True)
        shutil.rmtree(root / SAVING, ignore_errors=True)
        return
    client, _ = client_of(ENGINES[environment.kind], environment.options)
    ordered = root / _ORDERED
    if ordered.exists():
        names = dict.fromkeys(ordered.read_text(encoding="utf-8").splitlines())
        ask(client, "image", "rm", "--force", *names)
        ordered.unlink()


def _image_job(
    base: BaseImage,
    steps: Sequence[ImageStep],
    root: Path,
    env: Mapping[str, str],
    push: str | None = None,
) -> ImageJob:
    """Its images are written down before they are made."""
    environment, image = base.environment, base.image
    root.mkdir(parents=True, exist_ok=True)
    with (root / _ORDERED).open("a", encoding="utf-8") as made:
        made.writelines(f"{name}\n" for name in (*(s.target for s in steps), push) if name)
    options = environment.options
    entrypoint: tuple[str, ...] = ()
    if environment.kind in ENGINES:
        entrypoint = image_named(client_of(ENGINES[environment.kind], options)[0], image).entrypoint
        options = options_of_run(TrialSpec((), root, root, environment=environment))
    return ImageJob(
        environment.kind.value,
        image,
        steps,
        str(root.absolute()),
        steps[-1].target.replace(":", "-"),
        environment.mounts,
        options,
        env,
        entrypoint,
        push,
    )


Ends = Sequence[tuple[PackageSpec, str, str]]  # each with its good and its bad version


def at_hand(run: BisectRun, environment: Environment, root: Path) -> Environment:
    """The environment with an image that is here already: pyxis would import it anew."""
    image = str(environment.image)
    if environment.kind in ENGINES:
        client, _ = client_of(ENGINES[environment.kind], environment.options)
        image_named(client, image)
        return environment
    if image.startswith((".", "/")):
        return environment
    return replace(environment, image=_made(run, environment, "true", {}, root))


def base_of(
    run: BisectRun,
    environment: Environment,
    inside: ImageReader,
    found: ImageContents,
    ends: Ends,
    root: Path,
) -> BaseImage:
    """`environment` names the image as everybody can get it, `inside` asks the one at hand."""
    lines = ["set -e"]
    remotes: dict[str, str] = {}
    for package, good, bad in ends:
        path = found.paths.get(package.name, "")
        repository = Repository(inside.git(path), path)
        versions = (good, bad, *package.cherry_pick) if package.is_git else ()
        if missing := [version for version in versions if not repository.has(version)]:
            variable = f"AORTA_REMOTE_{len(remotes)}"
            remotes[variable] = package.remote or "origin"
            fetch = f"git -c safe.directory='*' -C {shlex.quote(path)} fetch --quiet"
            named = ", ".join(version[:12] for version in missing)
            failed = shlex.quote(f"cannot fetch the commits {named} of {package.name}")
            lines.append(
                f'{fetch} "${variable}" {shlex.join(missing)} || {{ echo {failed} >&2; exit 1; }}'
            )
    image, fetch = str(inside.environment.image), "\n".join(lines)
    if not remotes:
        return BaseImage(environment, image, found.versions)
    made = _made(run, inside.environment, fetch, remotes, root)
    return BaseImage(environment, made, found.versions, fetch, remotes)


def _made(
    run: BisectRun, environment: Environment, script: str, remotes: Mapping[str, str], root: Path
) -> str:
    """An image by running a script in another, through the executor like every build."""
    key = hashlib.sha256(f"{root}\n{environment.image}\n{script}".encode()).hexdigest()[:16]
    pyxis = environment.kind is RuntimeKind.PYXIS
    target = str(root.absolute() / f"{key}.sqsh") if pyxis else f"aorta-bisect:base-{key}"
    base = BaseImage(environment, str(environment.image), {})
    job = _image_job(base, [ImageStep(target, script)], root, remotes)
    fetch = build_step(job, root / "fetch", name="fetch")
    try:
        end = run_step(run.request.executor(), fetch)
    finally:
        (root / "fetch" / "job").unlink(missing_ok=True)
    if end.exit_code != 0:
        raise _not_made(end, image=str(environment.image), fetches=bool(remotes))
    return target


# In whose words a remote is none, or does not have the commit: a slip, and no trouble of a network.
_NO_SUCH = ("does not appear to be a git", "couldn't find remote ref", "not our ref")


def _not_made(end: TrialEnd, image: str, *, fetches: bool) -> AortaError:
    """Git's reason stands before its advice, and before our own words of what was fetched."""
    said = [line.strip() for line in without_secrets(end.stderr.tail).splitlines() if line.strip()]
    last = (said or ["it said nothing"])[-1]
    if not fetches:
        return InfrastructureError(f"cannot get the container: {last}", where=image)
    why = next((line for line in said if line.startswith("fatal: ")), last)
    kind = UsageError if any(words in why for words in _NO_SUCH) else InfrastructureError
    mend = "check the version, or give the package a remote that has it"
    return kind(f"{last}: {why.removeprefix('fatal: ')}; {mend}", where=image)


# -- one side of the answer as a command to paste


def shown_side(
    containers: ContainersSpec,
    image: str,
    command: ProbedCommand,
    recipe: "BuildRecipe | None" = None,
) -> str:
    """The image is the one that everybody can pull; what was made of it is made again."""
    environment = command.environment
    recipe = recipe or BuildRecipe()
    if not containers.plugin:
        return _shown_inside(environment, image, command, recipe)
    lines, tidy = [*export_lines(recipe.told), *exports(command.env)], ""
    if recipe.script:
        made, name = recipe.target, recipe.target.replace(":", "-").rpartition("/")[2]
        engine = _engine(environment)
        run = _run_words(environment, [f"--name={name}"], {**recipe.variables, **command.env})
        steps = [[*run, image, "sh", "-c", recipe.script], [*engine, "commit", name, made]]
        steps += [[*engine, "push", "--quiet", made]] if containers.registry else []
        gone = [[*engine, "rm", "--force", name], [*engine, "image", "rm", "--force", made]]
        lines += [*exports(recipe.variables), *(f"{shlex.join(words)} >&2" for words in steps)]
        tidy = "\n".join(f"{shlex.join(words)} >/dev/null" for words in gone)
    told = plugin_words(recipe.target or image, "PLACE", recipe.workload)
    lines.append(f'set -- "$@" {shlex.join(told)}'.replace("PLACE", '"$place"/output'))
    return on_this_machine(lines, command, tidy)


@dataclass(frozen=True)
class BuildRecipe:
    """How a state is made in its image, with which variables, and what its test is told."""

    script: str = ""
    variables: Mapping[str, str] = field(default_factory=dict)
    told: Mapping[str, str] = field(default_factory=dict)
    target: str = ""
    workload: str | None = None


def _shown_inside(
    environment: Environment, image: str, command: ProbedCommand, recipe: BuildRecipe
) -> str:
    env = {**recipe.variables, **command.env, **own_places(OUTPUT_MOUNT, command)}
    script = [*export_lines(recipe.told), recipe.script] if recipe.script else []
    if environment.kind is RuntimeKind.PYXIS:
        once = ONCE if script else ()
        options = _options_for_people(environment)
        words = ["srun", *image_options(image, environment.mounts, env), *options, *once]
        words += in_shell([f"mkdir -p {OUTPUT_MOUNT}", *script], shown_words(command))
        return shlex.join(in_shell(list(exports(env)), words))
    own = ["--rm", f"--tmpfs={OUTPUT_MOUNT}:exec,mode=1777"]
    words = _run_words(environment, own, env)
    words += [image, *in_shell(script, shown_words(command))]
    secrets = {name: value for name, value in env.items() if is_secret(name, value)}
    return shlex.join(in_shell(list(exports(secrets)), words))


def _engine(environment: Environment) -> list[str]:
    client, _ = client_of(ENGINES[environment.kind], environment.options)
    return [environment.kind.value, *client.argv[1:]]


def _run_words(environment: Environment, own: Sequence[str], env: Mapping[str, str]) -> list[str]:
    """`docker run` with these variables; a secret goes by its name."""
    _, options = client_of(ENGINES[environment.kind], _options_for_people(environment))
    return [
        *(*_engine(environment), "run", "--network=host", "--init", *own, *options),
        *(f"--volume={mount}" for mount in environment.mounts),
        *(f"--env={n}" + ("" if is_secret(n, v) else f"={v}") for n, v in env.items()),
    ]


def _options_for_people(environment: Environment) -> list[str]:
    """A container that runs once is in the working directory of the image without being told."""
    return [o for o in environment.options if o not in {IMAGES_WORKDIR, "--workdir="}]
