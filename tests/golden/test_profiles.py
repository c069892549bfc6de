"""The recipes of containers/kubernetes/profiles: what each one changes in a manifest, the strict schema, the
rules for manifests. `python -m tests.golden.test_profiles` writes the golden files again.
"""

from __future__ import annotations

import functools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from config.cluster import DEFAULT, load_cluster
from config.pod_shapes import AFFINITY, LABELS, POD_PATCH, Shape, check
from tests.golden.argo_lint import lint
from tests.golden.manifest_rules import RULES, Manifest, leaves
from tests.golden.strict_schema import strict_schema
from workflows.dag import manifest_yaml, render
from workflows.local import Refused
from workflows.local.engine import read_patches
from workflows.local.spec.manifest import prepare

ROOT = Path(__file__).parents[2]
RECIPES = {path.stem: path for path in ROOT.glob("containers/kubernetes/profiles/*.yaml")}
GOLDEN = Path(__file__).parent / "profiles"
ALGORITHM = "impala"
"""Has pods of every pool."""
OTHERS = ("alphazero", render.STUDY, render.SEARCH)
REMOVED = "(removed)"


@functools.cache
def built(recipe: str | None, name: str = ALGORITHM) -> Manifest:
    cluster = load_cluster(RECIPES[recipe] if recipe else None)
    if name in (render.STUDY, render.SEARCH):
        return render.build_study_manifest(cluster, 4, kind=name)
    return render.build_manifest(name, cluster)


def changes(recipe: str) -> dict[str, Any]:
    """What a recipe changes in a manifest. Templates with the same changes stand together."""
    default, own = (dict(built(one)["spec"]) for one in (None, recipe))
    before, after = (
        {template["name"]: readable(template) for template in spec.pop("templates")}
        for spec in (default, own)
    )
    groups: dict[str, list[str]] = {}
    for name in after:
        if changed := difference(before[name], after[name]):
            groups.setdefault(json.dumps(changed), []).append(name)
    templates = [{"names": names, "changes": json.loads(text)} for text, names in groups.items()]
    return {"spec": difference(default, own), "templates": templates}


def readable(template: dict[str, Any]) -> dict[str, Any]:
    """The template with its patch as a mapping, not as a text."""
    patch = template.get("podSpecPatch")
    return {**template, "podSpecPatch": json.loads(patch)} if patch else template


def difference(before: Any, after: Any) -> Any:
    """Of mappings the names that changed, of lists the items that came and went, else the value."""
    if isinstance(before, dict) and isinstance(after, dict):
        return {
            name: difference(before.get(name), after[name]) if name in after else REMOVED
            for name in sorted({*before, *after})
            if before.get(name) != after.get(name)
        }
    if isinstance(before, list) and isinstance(after, list):
        came = [one for one in after if one not in before]
        went = [one for one in before if one not in after]
        return {kind: items for kind, items in (("came", came), ("went", went)) if items}
    return after


def as_yaml(recipe: str) -> str:
    return yaml.safe_dump(changes(recipe), sort_keys=False, width=120)


def test_there_is_a_golden_file_for_each_recipe() -> None:
    assert set(RECIPES) == {"kueue", "spot", "openshift", "root-squash", "lab"}
    assert {path.stem for path in GOLDEN.glob("*.yaml")} == set(RECIPES)


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_changes_what_its_golden_file_says(recipe: str) -> None:
    golden = (GOLDEN / f"{recipe}.yaml").read_text()
    assert as_yaml(recipe) == golden, "run `python -m tests.golden.test_profiles`"


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    return strict_schema()


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_fits_the_schema_and_the_rules(
    recipe: str, schema: jsonschema.Draft202012Validator
) -> None:
    for name in (ALGORITHM, *OTHERS):
        manifest = manifest_yaml.load(manifest_yaml.dump(built(recipe, name)))
        assert [error.message for error in schema.iter_errors(manifest)] == []
    of_one = built(recipe)
    assert {rule.__name__: list(rule(of_one)) for rule in RULES} == {
        rule.__name__: [] for rule in RULES
    }


def test_argo_accepts_every_recipe(tmp_path: Path) -> None:
    for recipe in RECIPES:
        path = tmp_path / f"{recipe}.yaml"
        path.write_text(manifest_yaml.dump(built(recipe)))
        ended = lint(path)
        assert ended.returncode == 0, ended.stdout + ended.stderr


@pytest.mark.parametrize("recipe", sorted(set(RECIPES) - {"lab"}))
def test_a_recipe_is_understood_on_one_machine(recipe: str) -> None:
    read_patches(prepare(built(recipe)))


def test_a_second_claim_is_refused_on_one_machine() -> None:
    with pytest.raises(Refused, match=r"claims 'data-sets', .* one storage folder"):
        prepare(built("lab"))


@pytest.mark.parametrize("recipe", sorted(RECIPES))
def test_a_recipe_says_how_it_is_used_and_no_text_of_it_is_a_secret(recipe: str) -> None:
    text = RECIPES[recipe].read_text()
    assert f"--cluster containers/kubernetes/profiles/{recipe}.yaml" in text
    assert re.match(r"# [A-Z]", text)
    assert "value:" not in text


def largest(shape: Any) -> Any:
    """A value with every field of a shape."""
    if shape == LABELS:
        return {"a": "b"}
    if isinstance(shape, list):
        return [largest(shape[0])]
    if isinstance(shape, Shape):
        return {name: largest(inner) for name, inner in shape.fields.items()}
    return next(
        value for value in ("x", *shape.allowed.split(" or "), 1, True) if shape.fits(value)
    )


def test_every_field_of_an_affinity_and_a_patch_is_rendered_as_it_stands(
    schema: jsonschema.Draft202012Validator,
) -> None:
    affinity, patch = largest(AFFINITY), largest(POD_PATCH)
    check(affinity, AFFINITY, "affinity")
    check(patch, POD_PATCH, "pod_patch")
    cluster = load_cluster()
    pool = replace(cluster.actor, affinity=affinity, pod_patch=patch)
    manifest = render.build_manifest(ALGORITHM, replace(cluster, actor=pool))
    (actor,) = (leaf for leaf in leaves(manifest) if leaf["name"] == "train-actor")
    assert actor["affinity"] == affinity
    assert json.loads(actor["podSpecPatch"]).items() >= patch.items()
    assert [error.message for error in schema.iter_errors(manifest)] == []


def test_the_default_has_no_difference() -> None:
    assert load_cluster(DEFAULT) == load_cluster()
    assert difference(built(None), render.build_manifest(ALGORITHM, load_cluster(DEFAULT))) == {}
    assert len(leaves(built(None))) > 10


if __name__ == "__main__":
    for known in RECIPES:
        (GOLDEN / f"{known}.yaml").write_text(as_yaml(known))
