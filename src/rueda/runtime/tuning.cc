#include "rueda/runtime/tuning.h"

#include <cmath>
#include <iomanip>
#include <sstream>
#include <utility>

#include "rueda/base/log.h"
#include "rueda/runtime/backends.h"
#include "rueda/schedule/bucket_bytes.h"

namespace rueda::runtime {
control::Tuner::Options tuner_options(const Session& session, int64_t fusion_bytes) {
  const Config& config = session.config;
  const bool may_change_bits = config.tune == "on";
  const bool is_forced = !config.algorithm.empty();  // an algorithm, which may add in an order of its own
  control::Tuner::Options options;
  const bool is_chosen = is_forced || config.plan_bucket_bytes != 0;
  options.is_on = config.tune == "on" || (config.tune != "off" && !is_chosen);
  options.may_change_bits = may_change_bits;
  options.settle = nanos(config.tune_after_s, kSecond);
  options.budget = config.tune_percent / 100;
  if (!options.is_on) return options;
  options.ways.costs = {
      .call_us = bucket_cost(session), .packing_ns = schedule::kPackingNs, .most_bytes = fusion_bytes};
  if (!is_forced)
    for (const schedule::BucketAlgorithm& one : schedule::bucket_algorithms(world_topology(session)))
      options.ways.algorithms.push_back({.number = one.number, .name = one.name, .call_us = one.call_us});
  if (config.chunk_bytes == Config().chunk_bytes) options.ways.chunk_bytes = config.chunk_bytes;
  return options;
}

void TuningReport::open(Nanos now) {
  if (path_.empty() || began_ != 0) return;
  began_ = now;
  table_.open(path_, std::ios::trunc);
  if (!table_)
    RUEDA_LOG(kWarning, "RUEDA_TUNE_LOG: cannot write " + path_ + "; name a file in a folder that exists.");
  table_ << "seconds,buckets,tried,step_ms,gain_percent,kept\n" << std::flush;
}

void TuningReport::write(const std::vector<control::Tuner::News>& news, Nanos now) {
  if (news.empty() && (path_.empty() || began_ != 0)) return;
  open(now);
  for (const control::Tuner::News& one : news) {
    const double gain = 100 * one.gain;
    std::ostringstream said;
    said << std::fixed << std::setprecision(1) << one.what << " (" << one.buckets << " of a step): steps are "
         << std::abs(gain) << " % " << (gain < 0 ? "longer" : "shorter")
         << (one.is_better ? "; they are kept." : ".");
    RUEDA_LOG(kInfo, said.str());
    if (!table_.is_open()) continue;
    table_ << std::fixed << std::setprecision(1) << static_cast<double>(now - began_) / kSecond << ','
           << one.buckets << ",\"" << one.what << "\"," << std::setprecision(3)
           << static_cast<double>(one.period) / kMillisecond << ',' << std::setprecision(2) << gain << ','
           << (one.is_better ? 1 : 0) << std::endl;
  }
}

}  // namespace rueda::runtime
