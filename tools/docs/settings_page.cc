// Prints docs/settings.md: the table of base/config_table.h is the only place where a setting is described.
#include <cstdio>

#include "rueda/base/config_table.h"

int main() {
  const std::string page = rueda::config_markdown();
  return std::fwrite(page.data(), 1, page.size(), stdout) == page.size() ? 0 : 1;
}
