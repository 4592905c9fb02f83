#include "doctor/settings.h"

#include "rueda/base/config_table.h"
#include "rueda/base/setting_names.h"

namespace rueda::doctor {

Section examine_settings(const launch::Variables& environment) {
  Section section{.title = "settings", .facts = {}, .problems = {}};
  const auto get_env = [&](const char* name) -> const char* {
    for (auto entry = environment.rbegin(); entry != environment.rend(); ++entry)
      if (entry->first == name) return entry->second.c_str();
    return nullptr;
  };
  const auto known = known_settings();
  for (const auto& [name, value] : environment) {
    const bool is_ours = name.starts_with("RUEDA_");
    if ((!is_ours && !name.starts_with("HOROVOD_")) || value.empty()) continue;
    if (known.contains(name)) {
      section.add(name, value);
      continue;
    }
    section.advise(unknown_setting(name, nearest_setting(name)));
  }
  if (section.facts.empty()) section.add("set here", "none");
  for (const std::string& sentence : refused_settings(get_env)) section.fail(sentence + ".");
  for (const std::string& sentence : ignored_settings(get_env)) section.advise(sentence);
  return section;
}

}  // namespace rueda::doctor
