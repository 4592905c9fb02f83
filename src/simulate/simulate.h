// `rueda simulate`: predicts how long a training step takes on a cluster. Pure and deterministic: the same
// request gives the same report, to the last digit.
#pragma once

#include <string>
#include <string_view>

#include "rueda/base/status.h"
#include "simulate/prediction.h"

namespace rueda::simulate {

Result<Report> simulate(const Request& request);

std::string links_text(const Request& request);  // for people
// What to know about a workload that was taken from a job; "" = of none.
std::string world_text(const workload::Model& model);
// What the tuner found; "" = it was not asked for.
std::string tuned_text(const Request& request, const Prediction& row);
std::string page(const Report& report);
// A page for browsers. command: what was typed.
std::string html(const Report& report, std::string_view command);
std::string json(const Report& report);  // docs/simulate.md describes it

}  // namespace rueda::simulate
