// What launcher and agents take from one another, and what the launcher takes from the user.
#include "launch/agent_messages.h"
#include "launch/branch_messages.h"
#include "launch/hosts.h"
#include "parsers.h"

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

void add_hosts(std::vector<Parser>& all) {
  all.push_back({"hosts", of_text(launch::parse_hosts), {bytes_of("a:2,b:2,[::1]:4")}});
  const auto hostfile = [](std::string_view text) { return launch::parse_hostfile(text, "hosts"); };
  all.push_back({"hostfile", of_text(hostfile), {bytes_of("a slots=2 # one\nb:2\nc\n")}});
}

}  // namespace

std::vector<Parser> launch_parsers() {
  std::vector<Parser> all;
  add_agents(all);
  add_hosts(all);
  return all;
}

}  // namespace rueda::fuzz
