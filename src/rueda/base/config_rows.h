// What the rows of the settings table are made of.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "rueda/base/config.h"

namespace rueda {

// Three years, which is practically never and cannot overflow Nanos.
inline constexpr double kMaxSeconds = 1e8;

std::string number_text(double value);

// The description of an entry, without its parser.
struct Labels {
  std::string_view name, env, alias, unit, sentence;
};

// Ranges are written by hand next to their bounds, because a string_view member cannot own a generated text.
ConfigEntry integer(const Labels& labels, int64_t Config::*field, std::string_view range,
                    std::pair<int64_t, int64_t> bounds);
ConfigEntry number(const Labels& labels, double Config::*field, std::string_view range,
                   std::pair<double, double> bounds);
ConfigEntry boolean(const Labels& labels, bool Config::*field);
ConfigEntry text(const Labels& labels, std::string Config::*field, std::string_view range);

// What it keeps is a number, and what it prints is the name.
ConfigEntry flight_record_signal();
void add_metrics_port(std::vector<ConfigEntry>& table);
// The rows about verdicts: docs/verdicts.md.
void add_verdicts(std::vector<ConfigEntry>& table);

}  // namespace rueda
