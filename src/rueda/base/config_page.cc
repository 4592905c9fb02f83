// docs/settings.md, printed from the table of settings.
#include "rueda/base/config_table.h"

namespace rueda {
namespace {

// `rueda run` sets them; the options for users are those of `rueda run`.
constexpr const char* kElastic =
    "\n## Variables of elastic jobs\n\n"
    "`rueda run --min-np` and discovery scripts ([elastic.md](elastic.md)) set these for each process.\n\n"
    "| variable | Horovod name | what it says |\n"
    "|---|---|---|\n"
    "| `RUEDA_ELASTIC_TIMEOUT` | `HOROVOD_ELASTIC_TIMEOUT` | How many seconds this process waits for the "
    "next "
    "view: `--elastic-timeout`. |\n"
    "| | `HOROVOD_ELASTIC` | `1`. |\n"
    "| `RUEDA_ELASTIC_UID` | | The name of this process: host, slot, and how many were started there before: "
    "`b:1#2`. |\n"
    "| `RUEDA_ELASTIC_VIEW` | | `1`: it belongs to the first view. `0`: it joins later. |\n"
    "| `RUEDA_JOINER` | | `1`: it joins later; `init()` returns before it is a member. |\n"
    "| `RUEDA_ELASTIC` | | `members`, set by you: no launcher decides the views, the members do "
    "([elastic.md](elastic.md#without-a-launcher)). |\n"
    "| `RUEDA_ELASTIC_MEMBERS` | | `host:port,…`, set by you: where such a process that joins looks for "
    "members, besides `RUEDA_STORE`. |\n"
    "| `RUEDA_ELASTIC_BOARD` | | A file of the agent, through which members agree on the commit at which "
    "they "
    "leave a view. |\n\n"
    "What users choose (`--min-np`, `--max-np`, `--reset-limit` and others) are options, not variables.\n";

}  // namespace

std::string config_markdown() {
  const Config defaults;
  std::string page =
      "# Settings\n\nSettings are environment variables, which `init` reads. If the variable in the first "
      "column is not set,\n"
      "the Horovod name is used. An empty variable counts as not set. A value out of range is refused by "
      "name.\n\n"
      "| variable | Horovod name | type | unit | allowed | default | what it does |\n"
      "|---|---|---|---|---|---|---|\n";
  const auto cell = [](std::string_view text, bool is_code) {
    std::string escaped;
    for (const char c : text) escaped += c == '|' ? std::string(is_code ? " " : "\\|") : std::string(1, c);
    if (escaped.empty()) return std::string(" |");
    return is_code ? " `" + escaped + "` |" : " " + escaped + " |";
  };
  for (const ConfigEntry& entry : config_table()) {
    page += "|" + cell(entry.env, true) + cell(entry.alias, true) + cell(entry.type, false) +
            cell(entry.unit, false) + cell(entry.range, false) + cell(entry.print(defaults), true) +
            cell(entry.sentence, false) + "\n";
  }
  return page + kElastic;
}

}  // namespace rueda
