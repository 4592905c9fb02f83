"""tools/tidy finds what it promises to find, and nothing in clean code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import List

import pytest

TIDY = Path(__file__).resolve().parents[2] / "tools" / "tidy"


@pytest.fixture(scope="module")
def tidy():
    """The modules of tools/tidy, importable only while these tests run."""
    sys.path.insert(0, str(TIDY))
    try:
        import classes
        import layers
        import source
        import symbols
        import text
    finally:
        sys.path.remove(str(TIDY))

    class Modules:
        pass

    modules = Modules()
    modules.layers, modules.text, modules.symbols, modules.Source = layers, text, symbols, source.Source
    modules.classes = classes
    return modules


def rules(findings) -> List[str]:
    return [f.rule for f in findings]


def with_readmes(tidy, **files: str):
    """Sources of the given modules, each module with its README."""
    sources = [tidy.Source(path, text) for path, text in files.items()]
    modules = {"/".join(s.path.split("/")[:3]) for s in sources if s.path.startswith("src/rueda/")}
    return sources + [tidy.Source(f"{module}/README.md", "") for module in modules]


def edge(tidy, mine: str, included: str) -> List[str]:
    source = tidy.Source(f"src/{mine}/a.cc", f'#include "{included}"\n')
    return rules(tidy.layers.check_edges(source))


@pytest.mark.parametrize(
    ("mine", "included"),
    [
        ("rueda/store", "rueda/base/status.h"),
        ("rueda/backend", "rueda/schedule/step.h"),
        ("rueda/runtime", "rueda/control/messages.h"),
        ("rueda/capi", "rueda/rueda.h"),
        ("launch", "rueda/store/store.h"),
        ("cli", "launch/agent.h"),
        ("rueda/transport/tcp", "rueda/transport/transport.h"),
    ],
)
def test_a_lower_tier_may_be_included(tidy, mine, included):
    assert edge(tidy, mine, included) == []


@pytest.mark.parametrize(
    ("mine", "included"),
    [
        ("rueda/base", "rueda/store/store.h"),
        ("rueda/schedule", "rueda/transport/transport.h"),
        ("rueda/backend", "rueda/control/messages.h"),
        ("rueda/control", "rueda/backend/backend.h"),
        ("rueda/runtime", "rueda/capi/handles.h"),
        ("rueda/runtime", "rueda/rueda.h"),
        ("rueda/store", "launch/agent.h"),
        ("launch", "rueda/runtime/engine.h"),
        ("cli", "rueda/schedule/step.h"),
        ("launch", "cli/options.h"),
        ("rueda/transport/tcp", "rueda/transport/shm/ring.h"),
        ("rueda/nowhere", "rueda/base/status.h"),
    ],
)
def test_a_forbidden_edge_is_found(tidy, mine, included):
    assert edge(tidy, mine, included) == ["layer"]


def test_an_include_cycle_is_reported_once(tidy):
    files = {
        "src/rueda/base/a.h": '#include "rueda/base/b.h"\n',
        "src/rueda/base/b.h": '#include "rueda/base/c.h"\n',
        "src/rueda/base/c.h": '#include "rueda/base/a.h"\n',
    }
    findings = tidy.layers.check(with_readmes(tidy, **files))
    assert rules(findings) == ["include-cycle"]
    assert "rueda/base/a -> rueda/base/b -> rueda/base/c -> rueda/base/a" in findings[0].sentence


def test_a_header_and_its_source_are_one_unit(tidy):
    files = {
        "src/rueda/base/a.h": "",
        "src/rueda/base/a.cc": '#include "rueda/base/a.h"\n\n#include "rueda/base/b.h"\n',
        "src/rueda/base/b.h": '#include "rueda/base/a.h"\n',
    }
    findings = tidy.layers.check(with_readmes(tidy, **files))
    assert [(f.path, f.line, f.rule) for f in findings] == [("src/rueda/base/b.h", 1, "include-cycle")]
    assert findings[0].sentence == "rueda/base/a -> rueda/base/b -> rueda/base/a"


def test_a_diamond_is_no_cycle(tidy):
    files = {
        "src/rueda/base/a.h": '#include "rueda/base/b.h"\n#include "rueda/base/c.h"\n',
        "src/rueda/base/b.h": '#include "rueda/base/d.h"\n',
        "src/rueda/base/c.h": '#include "rueda/base/d.h"\n',
        "src/rueda/base/d.h": "",
    }
    assert tidy.layers.check(with_readmes(tidy, **files)) == []


def test_a_module_without_readme_is_found(tidy):
    findings = tidy.layers.check([tidy.Source("src/rueda/base/a.h", ""), tidy.Source("src/launch/b.cc", "")])
    assert [(f.path, f.rule) for f in findings] == [
        ("src/launch", "module-readme"),
        ("src/rueda/base", "module-readme"),
    ]


def test_only_core_names_c_symbols(tidy):
    line = "library.rueda_init(None)\n"
    assert rules(tidy.layers.check([tidy.Source("python/rueda/basics.py", line)])) == ["c-symbols"]
    assert tidy.layers.check([tidy.Source("python/rueda/_core.py", line)]) == []


def test_front_ends_do_not_know_each_other(tidy):
    source = tidy.Source(
        "python/rueda/torch/ops.py", "from rueda.tensorflow import x\nfrom rueda.basics import y\n"
    )
    assert rules(tidy.layers.check([source])) == ["layer"]
    for path in ("keras/optimizer.py", "jax/ops.py"):
        source = tidy.Source(f"python/rueda/{path}", "from rueda.numpy import x\n")
        assert rules(tidy.layers.check([source])) == []


def test_what_front_ends_share_knows_none_of_them(tidy):
    for text in ("def f():\n    from rueda.torch import x\n", 'load("rueda.keras.optimizer")\n'):
        assert rules(tidy.layers.check([tidy.Source("python/rueda/policy.py", text)])) == ["layer"]
        assert tidy.layers.check([tidy.Source("python/rueda/front_ends.py", text)]) == []
    text = "import importlib\nkeras = importlib.import_module('rueda.keras')\n"
    assert rules(tidy.layers.check([tidy.Source("python/rueda/tensorflow/a.py", text)])) == ["layer"]
    assert tidy.layers.check([tidy.Source("python/rueda/tensorflow/keras/a.py", text)]) == []


def test_front_ends_stand_on_one_another_without_cycles(tidy):
    known = set()
    for name, foundations in tidy.layers.python_layers.FOUNDATIONS.items():
        assert foundations <= known  # each names earlier ones alone
        known.add(name)


def test_python_import_cycles_are_found_once(tidy):
    texts = {
        "a": "from rueda.torch.b import x\n",
        "b": "def f():\n    from rueda.torch import c\n",
        "c": "import rueda.torch.a\n",
        "d": "from rueda.torch import a\n",
    }
    sources = [tidy.Source(f"python/rueda/torch/{name}.py", text) for name, text in texts.items()]
    findings = tidy.layers.check(sources)
    assert [f.rule for f in findings] == ["import-cycle"] and "torch.a -> rueda.torch.b" in str(findings[0])
    assert tidy.layers.check(sources[:2]) == []


def function_source(lines: int, before: str = "int f(int a) {") -> str:
    return "\n".join(["namespace a {", before, *["  g();"] * (lines - 2), "}", "}  // namespace a", ""])


@pytest.mark.parametrize(("lines", "expected"), [(60, []), (61, [False]), (90, [False]), (91, [True])])
def test_function_length_warns_then_fails(tidy, lines, expected):
    findings = tidy.text.check(tidy.Source("src/rueda/base/a.cc", function_source(lines)))
    assert [f.is_error for f in findings if f.rule == "function-length"] == expected


@pytest.mark.parametrize(
    "header",
    [
        "int A::f(int a) const noexcept {",
        "auto f() -> std::vector<int> {",
        "A::A(int b) : Base(b), c_(b) {",
        "TEST(Ring, works) {",
        "bool operator==(const A& b) const {",
    ],
)
def test_every_kind_of_function_is_measured(tidy, header):
    findings = tidy.text.check(tidy.Source("src/rueda/base/a.cc", function_source(100, header)))
    assert rules(findings) == ["function-length"]


def test_members_are_measured_and_classes_are_not(tidy):
    body = "  void f() {\n" + "    g();\n" * 40 + "  }\n"
    text = "class A final : public B {\n public:\n" + body * 3 + "};\n"
    assert tidy.text.check(tidy.Source("src/rueda/base/a.h", text)) == []


def test_braces_in_literals_and_comments_do_not_count(tidy):
    text = 'void f() {\n  g("{", \'{\', R"(})");  // {\n  /* { */\n}\n' + "int x;\n" * 95
    assert tidy.text.check(tidy.Source("src/rueda/base/a.cc", text)) == []


def test_python_functions_are_measured(tidy):
    text = "def f():\n" + "    g()\n" * 95
    assert rules(tidy.text.check(tidy.Source("python/rueda/a.py", text))) == ["function-length"]


CLASS = """
namespace rueda {
// class Comment {
struct Forward;
template <typename T, typename U = int>
class Sized final : public Base<T, U> {
 public:
  explicit Sized(std::map<int, U> map = {}) : map_{std::move(map)}, second_(2) {}
  Sized(const Sized&) = delete;
  [[nodiscard]] bool operator==(const Sized& other) const = default;
  bool operator()(int a, int b) const { return a < b; }
  virtual auto name() const -> std::function<void(int)>;
  static int count(int of);
  friend class Other;
  friend bool operator<(const Sized& a, const Sized& b) { return false; }
  using Key = std::pair<int, int>;
  enum class State : uint8_t { kOne, kTwo };
  static constexpr int kMost = 3;
  struct Inner {
    int value = 0;
    void run();
  };

 private:
  std::map<int, U> map_;
  int first_ = f(1, 2), second_ = 0;
  std::function<bool(int, int)> ask_ = [](int a, int b) { return a; };
  alignas(64) char bytes_[16] = {};
  void (*callback_)(int) = nullptr;
  struct {
    int x;
  } point_;
};
}  // namespace rueda
"""


def sized(tidy, name: str, *others: str):
    sources = [tidy.Source("src/rueda/base/a.h", CLASS)]
    sources += [tidy.Source(f"src/rueda/base/part{i}.cc", text) for i, text in enumerate(others)]
    return next(each for each in tidy.classes.measure(sources) if each.name == name)


def test_members_and_functions_of_a_class_are_counted(tidy):
    one = sized(tidy, "Sized")
    assert (one.members, one.functions) == (7, 4)
    assert one.lines == CLASS.count("\n") - 5  # from its template to its closing brace
    inner = sized(tidy, "Sized::Inner")
    assert (inner.members, inner.functions, inner.lines) == (1, 1, 4)


def test_a_class_is_measured_over_all_its_files(tidy):
    body = "rueda::Sized::Key Sized::{}(int a) {{\n  if (a) {{\n    g();\n  }}\n}}\n"
    texts = [body.format("f"), "namespace rueda {\n" + body.format("g") + body.format("h") + "}\n"]
    assert sized(tidy, "Sized", *texts).lines == sized(tidy, "Sized").lines + 3 * 5
    inner = sized(tidy, "Sized::Inner", "void rueda::Sized::Inner::run() {\n}\n")
    assert inner.lines == 4 + 2


def test_what_a_class_is_given_in_one_value_counts_as_its_members(tidy):
    parts = "struct Parts {\n  int& a;\n  int& b;\n  int& c;\n};\n"
    parts += "explicit A(Parts parts);\nParts parts_;\nint d_;\n"
    source = tidy.Source("src/rueda/base/a.h", f"class A {{\n{parts}}};\n")
    assert [one.members for one in tidy.classes.measure([source]) if one.name == "A"] == [4]


def class_with(members: int, functions: int) -> str:
    return "class A {\n" + "  int a_;\n" * members + "  void f();\n" * functions + "};\n"


@pytest.mark.parametrize(
    ("members", "functions", "larger", "expected"),
    [
        (24, 32, {}, []),
        (25, 33, {}, [False, False]),
        (31, 41, {}, [True, True]),
        (99, 3, {}, []),  # a record of values
        (31, 4, {"members": 31}, [False]),
        (32, 4, {"members": 31}, [True]),
        (31, 4, {"members": 32}, [True]),  # it has shrunk: so must its entry
    ],
)
def test_class_size_warns_then_fails(tidy, members, functions, larger, expected):
    source = tidy.Source("src/rueda/base/a.h", class_with(members, functions))
    findings = list(tidy.classes.check([source], {"src/rueda/base/a.h A": larger}))
    assert [f.is_error for f in findings if f.rule == "class-size"] == expected


def test_lines_of_a_class_are_limited(tidy):
    header = tidy.Source("src/rueda/base/a.h", "class A {\n  void f();\n};\n")
    parts = [f"void A::f{i}() {{\n" + "  g();\n" * 98 + "}\n" for i in range(5)]
    sources = [header, *(tidy.Source(f"src/rueda/base/a_{i}.cc", text) for i, text in enumerate(parts))]
    findings = list(tidy.classes.check(sources, {}))
    assert [(f.path, f.is_error) for f in findings] == [("src/rueda/base/a.h", True)]
    assert "503 lines in all its files" in findings[0].sentence


def test_an_entry_of_a_class_that_is_gone_is_found(tidy):
    source = tidy.Source("src/rueda/base/a.h", "")
    assert rules(tidy.classes.check([source], {"src/rueda/base/a.h A": {"lines": 600}})) == ["class-size"]


@pytest.mark.parametrize(("lines", "expected"), [(400, []), (401, [False]), (501, [True])])
def test_file_length_warns_then_fails(tidy, lines, expected):
    findings = tidy.text.check(tidy.Source("src/rueda/base/a.h", "\n" * lines))
    assert [f.is_error for f in findings] == expected


def test_long_lines_are_found(tidy):
    assert rules(tidy.text.check(tidy.Source("python/rueda/a.py", "x" * 111))) == ["line-length"]
    assert tidy.text.check(tidy.Source("python/rueda/a.py", "x" * 110)) == []


def test_throw_is_found_in_code_and_not_in_prose(tidy):
    assert rules(tidy.text.check(tidy.Source("src/rueda/base/a.cc", "void f() { throw 1; }\n"))) == ["throw"]
    assert (
        tidy.text.check(tidy.Source("src/rueda/base/a.cc", '// we throw nothing\nauto a = "throw";\n')) == []
    )


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("// TO" + "DO: later", "unfinished"),
        ("# FIX" + "ME", "unfinished"),
        ("see /wor" + "k/x", "private-place"),
        ("see share" + "d/reference", "private-place"),
        ("the cure of iss" + "ue 12", "issue-number"),
        ("cured (" + "#12)", "issue-number"),
    ],
)
def test_words_that_do_not_belong_are_found(tidy, line, rule):
    assert rules(tidy.text.check(tidy.Source("docs/a.md", line))) == [rule]


def test_vendor_headers_stay_in_their_folder(tidy):
    include = "#include <nccl.h>\n"
    assert rules(tidy.text.check(tidy.Source("src/rueda/runtime/a.cc", include))) == ["vendor-header"]
    assert tidy.text.check(tidy.Source("src/rueda/backend/nccl/a.cc", include)) == []


def test_foreign_exports_are_found(tidy):
    listed = "0000 T rueda_init\n0001 T _ZN5rueda3fooEv\n0002 V crypto_free\n"
    assert tidy.symbols.foreign_exports(listed) == ["_ZN5rueda3fooEv", "crypto_free"]


def test_the_folders_that_vendor_headers_may_stand_in_exist(tidy):
    root = TIDY.parents[1]
    assert [folder for folder in tidy.text.VENDOR_HEADERS.values() if not (root / folder).is_dir()] == []
