// docs/settings.md, printed from the table of settings.
#include "rueda/base/config_table.h"

namespace rueda {

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
  return page;
}

}  // namespace rueda
