// Shares of a step for programs: {"compute_ns": …, …}.
#pragma once

#include <nlohmann/json.hpp>

#include "timeline/summary.h"

namespace rueda::timeline {

nlohmann::ordered_json shares_json(const Shares& shares);

}  // namespace rueda::timeline
