"""Commands that prepare images, and that list names and recipes."""

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
    say_list,
    starting_config,
)


@app.command(epilog="Example: frossl pack photos --out photos-128 --size 128")
def pack(
    data: DataArgument,
    out: Annotated[str, typer.Option(help="New folder to write to")],
    size: Annotated[
        int | None, typer.Option(help="Side of the images in pixels (default: their own, at most 256)")
    ] = None,
    root: Root = None,
    fraction: Fraction = None,
    max_bad: MaxBad = None,
    quiet: Quiet = False,
) -> int:
    """Decode images once, so that training needs no decoding."""
    import frossl

    folder = frossl.pack(data, out=out, size=size, root=root, fraction=fraction, max_bad=max_bad, quiet=quiet)
    say(f"packed: {folder}")
    return 0


@app.command(epilog="Example: frossl check photos")
def check(
    data: DataArgument,
    root: Root = None,
    quiet: Quiet = False,
    json: Json = False,
) -> int:
    """Check images before a long run: find unreadable files and exact copies."""
    import frossl

    found = frossl.check(data, root=root, quiet=quiet)
    classes = f", {len(found.classes)} classes" if found.classes else ""
    tested = f", {found.test_images:,} test images" if found.test_images else ""
    say(f"{found.images:,} images{tested}{classes}; {found.size} px", to_stderr=json)
    say_list(
        f"{len(found.bad_files):,} cannot be read",
        [f"{name!r}: {reason}" for name, reason in found.bad_files.items()],
        to_stderr=json,
    )
    say(f"{found.copies:,} are exact copies of another image", to_stderr=json)
    if found.test_images:
        say_list(
            f"{len(found.crossing):,} test images are copies of training images",
            [f"{test!r} = {train!r}" for train, test in found.crossing],
            to_stderr=json,
        )
    if json:
        print_json(vars(found))
    return 0


@app.command(epilog="Example: frossl views photos --view-set multicrop --out views.png")
def views(
    data: DataArgument,
    out: Annotated[str, typer.Option(help="Image file to write")] = "views.png",
    config: ConfigFile = None,
    recipe: RecipeName = None,
    method: Annotated[
        str | None, typer.Option(help="Method whose views to draw; see `frossl list methods`")
    ] = None,
    view_set: Annotated[str | None, typer.Option(help="View set; see `frossl list views`")] = None,
    views: Annotated[int | None, typer.Option(help="Number of views of each image, at least 2")] = None,
    images: Annotated[int, typer.Option(help="Number of images")] = 8,
    seed: Seed = None,
    root: Root = None,
) -> int:
    """Draw the views of a few images, as the network would see them."""
    import frossl

    start = starting_config(config, recipe, method, views)
    path = frossl.views(
        data, out=out, config=start, view_set=view_set, views=views, images=images, seed=seed, root=root
    )
    say(f"views: {path}")
    return 0


KINDS = ("methods", "backbones", "data", "views", "recipes", "formats", "runs")
"""Kinds of names that `frossl list` knows."""


def _kinds(incomplete: str) -> list[str]:
    return [kind for kind in KINDS if kind.startswith(incomplete)]


@app.command("list", epilog="Example: frossl list backbones --like resnet")
def list_(
    kind: Annotated[
        str | None, typer.Argument(help=f"One of {', '.join(KINDS)}", autocompletion=_kinds)
    ] = None,
    like: Annotated[str, typer.Option(help="Text that the names must contain")] = "",
    under: Annotated[str, typer.Option(help="Folder to search for runs")] = "runs",
    json: Json = False,
) -> int:
    """List methods, backbones, data sets, view sets, recipes, export formats or runs."""
    import frossl

    found = {"runs": frossl.list_runs(under)} if kind == "runs" else frossl.list_names(kind)
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
    name: Annotated[
        str, typer.Argument(help="Name of the recipe; see `frossl list recipes`", autocompletion=recipe_names)
    ],
    method: Annotated[str | None, typer.Option(help="Method whose settings to print")] = None,
) -> int:
    """Print a recipe as TOML: the complete settings of a run, to start from."""
    from frossl.recipes import recipe_text

    typer.echo(recipe_text(name, method=method), nl=False)
    return 0
