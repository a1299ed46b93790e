"""Commands about images before a run, and about what can be named."""

from __future__ import annotations

from typing import Annotated

import typer

from frossl.cli.common import (
    ConfigFile,
    DataArgument,
    Fraction,
    Json,
    MaxBad,
    Quiet,
    RecipeName,
    Root,
    Seed,
    app,
    print_json,
    recipe_names,
    say,
    several,
    starting_config,
)


@app.command(epilog="Example: frossl pack photos --out photos-128 --size 128")
def pack(
    data: DataArgument,
    out: Annotated[str, typer.Option(help="A new folder for the pixels")],
    size: Annotated[
        int | None, typer.Option(help="Pixels along each side (default: theirs, up to 256)")
    ] = None,
    root: Root = None,
    fraction: Fraction = None,
    max_bad: MaxBad = None,
    quiet: Quiet = False,
) -> int:
    """Decode images once; training from the result touches no decoder."""
    from frossl import api

    folder = api.pack(data, out=out, size=size, root=root, fraction=fraction, max_bad=max_bad, quiet=quiet)
    say(f"packed: {folder}")
    return 0


@app.command(epilog="Example: frossl check photos")
def check(
    data: DataArgument,
    root: Root = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Look through images before a long run: which cannot be read, which are there twice."""
    from frossl import api

    found = api.check(data, root=root, quiet=quiet)
    classes = f", {len(found.classes)} classes" if found.classes else ""
    tested = f", {found.test_images:,} to be tested on" if found.test_images else ""
    say(f"{found.images:,} images{tested}{classes}; {found.size} px", to_stderr=json)
    several(
        f"{len(found.bad_files):,} cannot be read",
        [f"{name!r}: {reason}" for name, reason in found.bad_files.items()],
        to_stderr=json,
    )
    say(f"{found.copies:,} are exact copies of another one", to_stderr=json)
    if found.test_images:
        several(
            f"{len(found.crossing):,} to be tested on are among those to learn from",
            [f"{test!r} = {train!r}" for train, test in found.crossing],
            to_stderr=json,
        )
    if json:
        print_json(vars(found))
    return 0


@app.command(epilog="Example: frossl views photos --view-set multicrop --out views.png")
def views(
    data: DataArgument,
    out: Annotated[str, typer.Option(help="The picture")] = "views.png",
    config: ConfigFile = None,
    recipe: RecipeName = None,
    method: Annotated[str | None, typer.Option(help="What the recipe says of this method")] = None,
    view_set: Annotated[str | None, typer.Option(help="How views are made; see `frossl list`")] = None,
    views: Annotated[int | None, typer.Option(help="Views of each image, at least 2")] = None,
    images: Annotated[int, typer.Option(help="How many images")] = 8,
    seed: Seed = None,
    root: Root = None,
) -> int:
    """Draw what the networks would see."""
    from frossl import api

    start = starting_config(config, recipe, method, views)
    path = api.views(
        data, out=out, config=start, view_set=view_set, views=views, images=images, seed=seed, root=root
    )
    say(f"views: {path}")
    return 0


KINDS = ("methods", "backbones", "data", "views", "recipes", "runs")


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@app.command("list", epilog="Example: frossl list backbones --like resnet")
def list_(
    kind: Annotated[str | None, typer.Argument(help=", ".join(KINDS), autocompletion=_kinds)] = None,
    like: Annotated[str, typer.Option(help="Only names that contain this")] = "",
    under: Annotated[str, typer.Option(help="Where runs are looked for")] = "runs",
    json: Json = False,
) -> int:
    """Names that the other commands know, and the runs that there are."""
    from frossl import api

    found = {"runs": api.runs(under)} if kind == "runs" else api.names(kind)
    kinds = {title: {n: about for n, about in names.items() if like in n} for title, names in found.items()}
    if json:
        print_json(kinds)
        return 0
    for title, names in kinds.items():
        if kind is None:
            say(f"{title}: {', '.join(names)}")
            continue
        width = max(map(len, names), default=0)
        for name, about in names.items():
            say(f"{name:{width}}  {about}".rstrip())
    return 0


@app.command(epilog="Example: frossl recipe default > mine.toml")
def recipe(
    name: Annotated[str, typer.Argument(help="See `frossl list recipes`", autocompletion=recipe_names)],
    method: Annotated[str | None, typer.Option(help="As it is for this method")] = None,
) -> int:
    """Print a recipe, to start from: a complete run as TOML."""
    from frossl import api

    typer.echo(api.recipe_text(name, method=method), nl=False)
    return 0
