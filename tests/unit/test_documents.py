"""The documents name tests, files, classes and methods that exist; links lead to files and headings that exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from offline.cli import parser as offline_parser
from proxy.cli import parser as proxy_parser

ROOT = Path(__file__).parents[2]
PRODUCT = ("protocol", "quotas", "commandline", "kafka_client", "proxy", "offline")
DOCUMENTS = [
    str(path.relative_to(ROOT)) for path in sorted((*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
]
HISTORY = (
    "CHANGELOG.md",
    "docs/decisions/",
    "docs/reference/",
)  # they name what there was, and Kafka's own files
LINK = re.compile(r"\]\(([^)\s]+)\)")
CODE = re.compile(r"^ *```.*?^ *```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
FIGURE = re.compile(r"\d[\d,]*(?:\.\d+)?")


def read(document: str | Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if not name.startswith(HISTORY)])
def test_named_paths_exist(document: str) -> None:
    named = re.findall(
        r"`((?:protocol|quotas|commandline|kafka_client|proxy|offline|tests|docker|docs)/[\w./-]*)`",
        read(document),
    )
    assert [name for name in named if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if not name.startswith(HISTORY)])
def test_named_lock_files_exist(document: str) -> None:
    named = set(re.findall(r"\brequirements/[\w-]+\.(?:txt|in)\b", read(document)))
    assert [name for name in named if not (ROOT / name).exists()] == []


def sections(text: str) -> dict[str, str]:
    """What stands below each heading, up to the next, by the heading's anchor as it is made where files are read."""
    prose = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    found: dict[str, str] = {}
    for heading, body in re.findall(r"^#+ (.+)$((?:\n(?!#+ ).*)*)", prose, flags=re.MULTILINE):
        shown = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\- ]", "", shown).replace(" ", "-")
        found[next(name for n in range(99) if (name := f"{slug}-{n}" if n else slug) not in found)] = body
    return found


def anchors(text: str) -> set[str]:
    """The anchors of a Markdown file: those of its headings, and its own."""
    return set(sections(text)) | set(re.findall(r'<a id="([\w-]+)">', CODE.sub("", text)))


def test_anchors_are_those_of_headings() -> None:
    text = '# Running `it`: a\n## A — b_c\n```\n# none\n```\n## A — b_c\n<a id="old"></a>\n'
    assert anchors(text) == {"running-it-a", "a--b_c", "a--b_c-1", "old"}


@pytest.mark.parametrize("document", DOCUMENTS)
def test_links_lead_to_files_and_headings(document: str) -> None:
    path = ROOT / document
    wrong = []
    for link in LINK.findall(CODE.sub("", read(document))):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            wrong.append(link)
    assert wrong == []


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_documents_link_to_documents(document: str) -> None:
    """What is not under docs/ is no page of the site: it is named and not linked."""
    links = [link.partition("#")[0] for link in LINK.findall(CODE.sub("", read(document)))]
    targets = [(ROOT / document).parent / link for link in links if not re.match(r"[a-z]+:|$", link)]
    assert [str(one) for one in targets if not one.resolve().is_relative_to(ROOT / "docs")] == []


@pytest.mark.parametrize("document", [name for name in DOCUMENTS if name.startswith("docs/")])
def test_markdown_is_read_alike_everywhere(document: str) -> None:
    """The site's Markdown begins a list or a table after a blank line alone, and shows what escapes a | in code."""
    prose = re.sub(r"^ *```.*?^ *```$", "", read(document), flags=re.MULTILINE | re.DOTALL)
    before = r"^(?![-*] |\||\d+\. | |<!--|$).*\n"
    assert re.findall(before + r"(?=(?:[-*] |\d+\. ).*)", prose, re.MULTILINE) == []
    assert re.findall(before + r"\|.*", prose, re.MULTILINE) == []
    assert re.findall(r"^\|.*`[^`]*\\\|[^`]*`", prose, re.MULTILINE) == []


def test_figures_of_the_readme_are_those_of_the_benchmarks() -> None:
    """Each row links to the section that has its figures; they may be rounded."""
    benchmarks = sections(read("docs/benchmarks.md"))
    rows = re.findall(
        r"^\| \[[^]]+\]\(docs/benchmarks\.md#([\w-]+)\) \|(.+)$", read("README.md"), re.MULTILINE
    )
    assert len(rows) > 5
    for anchor, cells in rows:
        measured = [float(figure.replace(",", "")) for figure in FIGURE.findall(benchmarks[anchor])]
        for quoted in FIGURE.findall(cells):
            assert any(rounds_to(figure, quoted) for figure in measured), (anchor, quoted)


def test_accuracy_in_prose_is_that_of_the_benchmarks() -> None:
    measured = [
        float(figure)
        for anchor, body in sections(read("docs/benchmarks.md")).items()
        if anchor.startswith("accuracy-")
        for figure in FIGURE.findall(body.replace(",", ""))
    ]
    for document in ("README.md", "docs/policies.md"):
        quoted = re.findall(r"(\d+\.\d+) ×", read(document))
        assert quoted
        assert [one for one in quoted if not any(rounds_to(figure, one) for figure in measured)] == []


def rounds_to(figure: float, quoted: str) -> bool:
    """Whether a figure is written so when it is rounded: to decimals, or to thousands."""
    number, decimals = float(quoted.replace(",", "")), len(quoted.partition(".")[2])
    return number in (round(figure, decimals), round(figure, -3))


def printed() -> Iterator[tuple[str, list[str]]]:
    """The commands of ours in blocks without a language: the document, and the words of each."""
    for document in DOCUMENTS:
        for block in re.findall(r"^ *```\n(.*?)^ *```$", read(document), re.MULTILINE | re.DOTALL):
            for line in block.replace("\\\n", " ").splitlines():
                command = re.match(r"\s*(?:[\w./-]*/)?(sluice|sluice-offline) (.+)", line)
                if command:
                    ours = re.split(r" (?:\||>>?|&&) ", command[2])[0]
                    yield document, [command[1], *shlex.split(ours, comments=True)]


def test_printed_commands_have_arguments_that_exist(capsys: pytest.CaptureFixture[str]) -> None:
    parsers = {"sluice": proxy_parser(), "sluice-offline": offline_parser()}
    found = list(printed())
    assert len(found) > 20
    wrong = []
    for document, (program, *arguments) in found:
        try:
            parsers[program].parse_args(arguments)
        except SystemExit as end:
            if end.code:  # 0 of --help and --version
                wrong.append((document, arguments, capsys.readouterr().err))
    assert wrong == []


def defined() -> tuple[dict[str, list[ast.ClassDef]], set[str]]:
    """Every class of the product by its name, and every function as `module.function`."""
    classes: dict[str, list[ast.ClassDef]] = {}
    functions = set()
    for path in (path for package in PRODUCT for path in (ROOT / package).rglob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef):
                classes.setdefault(node.name, []).append(node)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                functions.add(f"{path.stem}.{node.name}")
    return classes, functions


def has(classes: dict[str, list[ast.ClassDef]], name: str, attribute: str) -> bool:
    """Whether a class of this name, or one of its bases, has such a method or attribute."""
    for cls in classes.get(name, []):
        for node in ast.walk(cls):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name == attribute:
                return True
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and node.attr == attribute:
                return True
        if any(has(classes, ast.unparse(base).partition("[")[0], attribute) for base in cls.bases):
            return True
    return False


def test_architecture_names_functions_that_exist() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    classes, functions = defined()
    methods = re.findall(r"`(_?[A-Z]\w*)\.(\w+)`", text)
    assert len(methods) > 40, "the document names its functions otherwise than this test thinks"
    assert [f"{name}.{attribute}" for name, attribute in methods if not has(classes, name, attribute)] == []
    steps = text.partition("## Four requests, function by function")[2].partition("\n## ")[0]
    called = re.findall(r"`([a-z]\w*\.(?!py)\w+)`", steps)
    assert called
    assert set(called) - functions == set()
