// What the command takes from its agents, from ranks that measure, and from files of the user.
#include "bench/sizes.h"
#include "launch/agent_messages.h"
#include "launch/branch_messages.h"
#include "launch/hosts.h"
#include "parsers.h"
#include "preflight/host_facts.h"
#include "preflight/outcome.h"
#include "simulate/cluster.h"
#include "workload/models.h"

namespace rueda::fuzz {
namespace {

void read_messages(Input input) {
  launch::MessageReader reader(launch::kAgentMagic);
  while (!input.empty()) {
    const Input some = input.first(std::min<size_t>(input.size(), 100));
    reader.feed(some);
    input = input.subspan(some.size());
    for (;;) {
      const auto message = reader.next();
      if (!message.is_ok()) return require(!message.status().why.empty(), "a refusal says why");
      if (!message.value()) break;
    }
  }
}

void add_agents(std::vector<Parser>& all) {
  using namespace launch;
  const Hello hello{.release = "1", .host = "a", .pid = 4711, .private_dir = "/tmp/x", .free_port = 4000};
  all.push_back({"agent_hello", round_trip(decode_hello, kEncode), {encode(hello)}});
  Job job;
  job.argv = {"python", "train.py"};
  job.ranks = {{.rank = 1, .env = {{"A", "b"}}}};
  all.push_back({"agent_job", round_trip(decode_job, kEncode), {encode(job)}});
  const Exit exit{.rank = 1, .pid = 4711, .signal = 9, .trouble = "none"};
  all.push_back({"agent_exit", round_trip(decode_exit, kEncode), {encode(exit)}});
  all.push_back({"agent_rank_job", round_trip(decode_rank_job, kEncode), {encode(job.ranks[0])}});
  const ViewChangeFor change{.rank = 1, .change = {.round = 2, .commit = 7, .does_leave = true}};
  all.push_back({"agent_view_change", round_trip(decode_view_change, kEncode), {encode(change)}});
  const BoardReport board{.rank = 1, .round = 2, .commit = 7, .answer = -1};
  all.push_back({"agent_board", round_trip(decode_board_report, kEncode), {encode(board)}});
  const Question question{.id = 3, .text = {.what = "stacks", .timeout_ms = 10, .rank = 1}};
  all.push_back({"agent_question", round_trip(decode_question, kEncode), {encode(question)}});
  const BranchOrder order{.branch = 3, .host = "b", .binary = "/rueda", .ssh = {.args = {"-A"}}};
  all.push_back({"agent_branch_order", round_trip(decode_branch_order, kEncode), {encode(order)}});
  const BranchEnd end{.branch = 3, .wait_status = 256, .trouble = "none"};
  all.push_back({"agent_branch_end", round_trip(decode_branch_end, kEncode), {encode(end)}});
  const BranchPart part{.branch = 3, .stream = Stream::kStdout, .bytes = as_bytes("x")};
  all.push_back({"agent_branch_part", round_trip(decode_branch_part, kEncode), {encode(part)}});
  Bytes stream = bytes_of("login banner");
  const Bytes magic = bytes_of(kAgentMagic), message = encode_message(MessageType::kHello, encode(hello));
  stream.insert(stream.end(), magic.begin(), magic.end());
  stream.insert(stream.end(), message.begin(), message.end());
  all.push_back({"agent_stream", read_messages, {stream}});
}

void add_files(std::vector<Parser>& all) {
  all.push_back({"hosts", of_text(launch::parse_hosts), {bytes_of("a:2,b:2,[::1]:4")}});
  const auto hostfile = [](std::string_view text) { return launch::parse_hostfile(text, "hosts"); };
  all.push_back({"hostfile", of_text(hostfile), {bytes_of("a slots=2 # one\nb:2\nc\n")}});
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
  add_agents(all);
  add_files(all);
  add_preflight(all);
  return all;
}

}  // namespace rueda::fuzz
