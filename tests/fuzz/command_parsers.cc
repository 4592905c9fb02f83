// What commands that measure and predict take: from ranks, and from files of the user.
#include "bench/sizes.h"
#include "parsers.h"
#include "preflight/host_facts.h"
#include "preflight/outcome.h"
#include "simulate/cluster.h"
#include "workload/models.h"

namespace rueda::fuzz {
namespace {

void add_files(std::vector<Parser>& all) {
  const auto model = [](std::string_view text) { return workload::parse_model(text, "model.json"); };
  const std::string gradients =
      R"({"name": "m", "source": "-", "compute_ms": 2, "compute_source": "-", "total": 3,
          "parameters": [["a", 1], ["b", 2]], "ready_ms": [1, 2]})";
  all.push_back({"model", of_text(model), {bytes_of(gradients)}});
  const auto cluster = [](std::string_view text) { return simulate::parse_cluster(text, "cluster.json"); };
  const std::string hosts =
      R"({"hosts": [{"name": "a", "ranks": 2, "rate": "1gbit"}, {"name": "b"}],
          "link": {"kind": "rdma", "rate": "25gbit", "latency_us": 20},
          "links": [{"hosts": ["a", "b"], "rate": "5gbit"}],
          "tiers": [{"hosts": 2, "oversubscription": 4}]})";
  all.push_back({"cluster", of_text(cluster), {bytes_of(hosts)}});
  all.push_back({"bytes", of_text(bench::parse_bytes), {bytes_of("64MiB")}});
  all.push_back({"rate", of_text(bench::parse_rate), {bytes_of("2.5gbit")}});
}

void add_preflight(std::vector<Parser>& all) {
  const preflight::HostFacts facts;
  const auto decode = [](std::string_view text) { return preflight::decode_facts(text); };
  all.push_back({"host_facts", of_text(decode), {bytes_of(preflight::encode(facts))}});
  preflight::Measured measured;
  measured.hosts = {facts, facts};
  measured.within_gbit_per_s = {1, 2};
  all.push_back({"measured", of_text(preflight::decode_measured), {bytes_of(preflight::encode(measured))}});
}

}  // namespace

std::vector<Parser> command_parsers() {
  std::vector<Parser> all;
  add_files(all);
  add_preflight(all);
  return all;
}

}  // namespace rueda::fuzz
