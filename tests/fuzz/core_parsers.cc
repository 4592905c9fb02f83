// What ranks take from one another, from the store, and from processes that ask them.
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <optional>

#include "parsers.h"
#include "rueda/base/handshake.h"
#include "rueda/base/process.h"
#include "rueda/base/unique_fd.h"
#include "rueda/control/facts.h"
#include "rueda/control/message_types.h"
#include "rueda/control/messages.h"
#include "rueda/control/statement.h"
#include "rueda/members/member_store.h"
#include "rueda/membership/vote.h"
#include "rueda/runtime/peer_info.h"
#include "rueda/runtime/peer_table.h"
#include "rueda/runtime/residuals.h"
#include "rueda/status/job_answer.h"
#include "rueda/status/job_news.h"
#include "rueda/status/python_text.h"
#include "rueda/store/ended.h"
#include "rueda/store/entries.h"
#include "rueda/store/messages.h"
#include "rueda/store/relay_frame.h"
#include "rueda/store/store_url.h"
#include "rueda/trace/record_format.h"
#include "rueda/trace/record_reader.h"
#include "rueda/transport/ucx/piece.h"

namespace rueda::fuzz {
namespace {

// ---- control ----

std::vector<control::Request> some_requests() {
  control::TensorRequest tensor;
  tensor.name = "gradient.12";
  tensor.numbered_at = 9;
  tensor.shape = {3, 4};
  tensor.splits = {1, 2};
  tensor.group_size = 2;
  tensor.group_name = "group";
  tensor.shares_memory = true;
  tensor.after = {{.process_set = 1, .name = "other"}};
  return {tensor, control::SetChange{.name = "add", .what = control::AddSet{.ranks = {0, 2}}},
          control::SetChange{.name = "remove", .what = control::RemoveSet{.id = 1}}};
}

std::vector<control::Response> some_responses() {
  control::Bucket bucket;
  bucket.entries = {{.name = "a", .shape = {2, 3}, .rows = {1, 2}},
                    {.name = "b7", .shape = {}, .rows = {}, .numbered_at = 1}};
  bucket.joined = {1};
  return {bucket,
          control::Failure{.failed = {{.name = "c", .ranks = {0, 1}}}, .error = "shapes differ"},
          control::Joined{.names = {"join"}, .last = 1},
          control::SetAdded{.names = {"add"}, .id = 1, .ranks = {0, 2}},
          control::SetRemoved{.names = {"remove"}, .id = 1},
          control::PlanBucket{.bucket = bucket},
          control::PlanBegin{.plan_number = 1, .sets = {{.id = 1, .ranks = {0, 2}}}},
          control::PlanEnd{.runs = {3}, .flows = {{.bucket = 1, .from = 0, .to = 2, .messages = 4}}}};
}

control::Facts some_facts() {
  control::Facts facts;
  facts.plan_lacks = "gradient.3";
  facts.peer_processes = {{.of = 1}};
  facts.not_finite = control::NotFinite{.tensor = "loss", .element = 3};
  facts.unreached = {{.of = 2, .age = kSecond}};
  return facts;
}

void add_control(std::vector<Parser>& all) {
  using namespace control;
  const auto as_submitted = [](const Submitted& one) { return encode(one.plans_begun, one.requests); };
  const auto as_responses = [](const std::vector<Response>& all) { return encode(std::span(all)); };
  all.push_back({"requests", round_trip(decode_submitted, as_submitted), {encode(2, some_requests())}});
  all.push_back({"responses", round_trip(decode_responses, as_responses), {as_responses(some_responses())}});
  const PlanReport report{.plan_number = 1, .started = 5, .under_way = {{.bucket = 4, .sent = {0, 2}}}};
  all.push_back({"plan_report", round_trip(decode_plan_news, kEncode), {encode(report)}});
  all.push_back({"heartbeat",
                 round_trip(decode_heartbeat, kEncode),
                 {encode(Heartbeat{.sent = 7, .clock = ClockOffset{}})}});
  all.push_back({"abort", round_trip(decode_abort, kEncode), {encode(Abort{.lost = 2, .why = "lost"})}});
  const auto decode_request = [](auto payload) { return control::decode_connect(payload, 8); };
  all.push_back(
      {"connect", round_trip(decode_request, kEncode), {encode(ConnectRequest{.whom = 3, .to = 1})}});
  const auto decode_a_routed = [](auto payload) { return control::decode_routed(payload, 8); };
  all.push_back({"routed",
                 round_trip(decode_a_routed, kEncode),
                 {encode(RoutedMessage{.to = 3, .type = MessageType::kProbe, .payload = encode_time(7)})}});
  const auto as_statements = [](const std::vector<Statement>& all) { return encode(std::span(all)); };
  const std::vector<Statement> statements = {
      {.from = RankSet::from_to(4, 7), .type = MessageType::kRequests, .payload = encode(2, some_requests())},
      {.from = 5, .type = MessageType::kDone, .payload = {}}};
  all.push_back({"statements", round_trip(decode_statements, as_statements), {as_statements(statements)}});
  all.push_back({"facts", round_trip(control::decode_facts, kEncode), {encode(some_facts())}});
  const auto header = [](Input input) {
    if (input.size() >= kControlHeaderBytes) (void)decode_header(input.first<kControlHeaderBytes>());
  };
  const auto seed = encode_header({.bytes = 12});
  all.push_back({"control_header", header, {Bytes(seed.begin(), seed.end())}});
}

// ---- store, status ----

Result<store::Command> command_of(Input bytes) { return store::decode_command(bytes); }
Result<store::Reply> reply_of(Input bytes) { return store::decode_reply(bytes); }
// The decoders take a message without its length.
const auto kEncodeBody = [](const auto& value) {
  const Bytes message = encode(value);
  return Bytes(message.begin() + store::kLengthBytes, message.end());
};

void add_store(std::vector<Parser>& all) {
  const store::Command command{.op = store::Op::kSet, .key = "rank/1", .value = "here", .amount = 3};
  const store::Command given{.op = store::Op::kGive, .key = "t/", .value = "here", .amount = 3, .limit = 8};
  all.push_back(
      {"store_command", round_trip(command_of, kEncodeBody), {kEncodeBody(command), kEncodeBody(given)}});
  const auto entries = [](Input input) {
    const auto read = store::decode_entries(text_of(input));
    if (read.is_ok()) require(store::encode_entries(read.value()) == text_of(input), "it has one form");
  };
  all.push_back({"store_entries", entries, {bytes_of(store::encode_entries({{0, "a"}, {3, "b"}}))}});
  const store::Reply reply{.code = Code::kOk, .text = "value", .sum = 4};
  all.push_back({"store_reply", round_trip(reply_of, kEncodeBody), {kEncodeBody(reply)}});
  const auto ended = [](Input input) {
    const auto one = store::parse_ended(text_of(input));
    if (one) require(store::parse_ended(store::format_ended(*one)).has_value(), "it can be read again");
  };
  const std::string text = store::format_ended({.size = 4, .rank = 1, .how = "rank 1 exited", .pid = 4711});
  all.push_back({"ended_rank", ended, {bytes_of(text)}});
  const auto frame = [](Input input) {
    const auto first = store::first_frame(input);
    if (first.is_ok() && first.value()) require(first.value()->size() <= input.size(), "it is whole");
  };
  Bytes frames;
  store::append_frames(frames, 7, bytes_of("said"));
  all.push_back({"store_relay_frame", frame, {frames}});
  all.push_back({"store_url", of_text(store::parse_store_url), {bytes_of("tcp://10.0.0.1:4711")}});
}

void add_membership(std::vector<Parser>& all) {
  using namespace membership;
  const View view{.number = 2, .members = {{.uid = "a:0#0", .host = "a", .commit = 7}}, .lost = {"b:0#1"}};
  all.push_back({"view", round_trip(decode_view, kEncode), {encode(view)}});
  all.push_back({"vote", round_trip(decode_vote, kEncode), {encode(accept({3, "a:0#0"}, view))}});
  const Ready ready{.uid = "a:0#0", .host = "a", .after = 1, .commit = 7, .digest = "model"};
  all.push_back({"ready", round_trip(decode_ready, kEncode), {encode(ready)}});
  const auto as_bytes = [](const auto& value) { return bytes_of(members::to_text(value)); };
  const auto from_text = [](auto parse) {
    return [parse](std::span<const std::byte> raw) {
      return parse(std::string_view(reinterpret_cast<const char*>(raw.data()), raw.size()));
    };
  };
  const members::Contact contact{.address = "10.0.0.1", .port = 4711, .pid = 7, .began = 8, .pids = 9};
  all.push_back({"contact", round_trip(from_text(members::parse_contact), as_bytes), {as_bytes(contact)}});
  const members::LeaveAt order{.view = 2, .commit = 7};
  all.push_back({"leave_at", round_trip(from_text(members::parse_leave_at), as_bytes), {as_bytes(order)}});
}

void add_status(std::vector<Parser>& all) {
  using namespace status;
  const JobNews news{.held = {{.rank = 1, .state = ProcessState::kStopped}}, .without_agent = {2}};
  all.push_back({"job_news", round_trip(decode_job_news, kEncode), {encode(news)}});
  const std::vector<ProcessAnswer> processes = {{.rank = 1, .pid = 4711, .text = "{}", .missing = ""}};
  all.push_back({"process_answers", round_trip(decode_processes, kEncode), {encode(processes)}});
  const JobAnswer answer{.release = "", .launcher = 1, .hosts = {{.host = "a", .processes = processes}}};
  all.push_back({"job_answer", of_text(decode_job_answer), {bytes_of(encode(answer))}});
  const auto question = [](Input input) {
    const auto one = parse_question(text_of(input));
    if (one) require(parse_question(format_question(*one)) == one, "it means the same when it is read again");
  };
  const JobQuestion stacks{.what = "stacks", .timeout_ms = 500, .rank = 3};
  all.push_back({"job_question", question, {bytes_of(format_question(stacks))}});
  const auto python = [](Input input) { (void)parse_python_text(text_of(input)); };
  const std::string stack =
      "Thread 0x00007f3a5c9b7740 (most recent call first):\n  File \"train.py\", line 12 in step\n";
  all.push_back({"python_stack", python, {bytes_of(stack)}});
}

// ---- connections ----

// Both ends of a handshake; neither may believe that it has ended well, because the bytes prove nothing.
void shake(Input input, bool is_server) {
  const Secret secret{.key = Bytes(32, std::byte{7})};
  const ConnectionIdentity identity{.job = "job", .epoch = 3, .from = is_server ? -1 : 1, .to = 0};
  Handshake hands =
      is_server ? Handshake::server(secret, identity, "1") : Handshake::client(secret, identity, "1");
  (void)hands.take_output();
  while (!input.empty()) {
    const Result<size_t> taken = hands.feed(input.first(std::min<size_t>(input.size(), 7)));
    (void)hands.take_output();
    if (!taken.is_ok()) return require(!taken.status().why.empty(), "a refusal says why");
    require(!hands.is_done(), "bytes that prove nothing are no handshake");
    if (taken.value() == 0) return;
    input = input.subspan(taken.value());
  }
}

Bytes first_of(bool is_server) {
  const Secret secret{.key = Bytes(32, std::byte{7})};
  const ConnectionIdentity identity{.job = "job", .epoch = 3, .from = 1, .to = 0};
  Handshake client = Handshake::client(secret, identity, "1");
  const Bytes hello = client.take_output();
  if (is_server) return hello;
  Handshake server = Handshake::server(secret, {.job = "job", .epoch = 3, .to = 0}, "1");
  (void)server.feed(hello);
  return server.take_output();
}

void add_connections(std::vector<Parser>& all) {
  all.push_back({"handshake_server", [](Input input) { shake(input, true); }, {first_of(true)}});
  all.push_back({"handshake_client", [](Input input) { shake(input, false); }, {first_of(false)}});
  runtime::PeerInfo info;
  info.release = "1";
  info.host = "a";
  info.addresses = {{"tcp", "10.0.0.1:4711"}};
  info.process_sets = {{0, 2}};
  info.own_sets = {0};
  const auto kEncodeTable = [](const auto& table) { return runtime::encode_table(table); };
  all.push_back({"peer_table",
                 round_trip(runtime::decode_table, kEncodeTable),
                 {runtime::encode_table({info, info, runtime::PeerInfo{}})}});
  all.push_back({"peer_info", round_trip(runtime::decode_peer_info, kEncode), {encode(info)}});
  const auto piece = [](Input input) { (void)transport::parse_piece_header(input); };
  all.push_back({"ucx_piece", piece, {Bytes(sizeof(transport::PieceHeader), std::byte{1})}});
  const auto stat = [](Input input) { (void)parse_process_stat(text_of(input)); };
  all.push_back(
      {"process_stat", stat, {bytes_of("12 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17")}});
}

// ---- files of programs ----

// Of two tensors, of which one has something left to be sent.
runtime::Batch two_tensors() {
  runtime::Batch batch;
  auto bucket = std::make_shared<control::Bucket>();
  bucket->entries = {{.name = "a", .shape = {300}, .rows = {}}, {.name = "b", .shape = {3}, .rows = {}}};
  batch.bucket = std::move(bucket);
  batch.segments = {{.count = 300}, {.count = 3}};
  batch.tensors.resize(2);
  return batch;
}

constexpr int64_t kMostElements = 1 << 16;  // sizes are foreign, too, and this machine has other work
const runtime::Placements kOneHost = [](int32_t process_set) { return process_set == 0 ? 1U : 0U; };

// What was accepted can be saved again, and the memory that plans hold stays where it is.
void load_residuals(Input input) {
  runtime::ResidualStore store(kMostElements);
  runtime::Batch planned = two_tensors(), again = two_tensors();
  require(store.attach(planned).is_ok(), "two small tensors have residuals");
  const auto done = store.restore(input, kOneHost);
  if (!done.is_ok()) return require(!done.status().why.empty(), "a refusal says why");
  require(store.attach(again).is_ok(), "the tensors keep their residuals");
  for (size_t i = 0; i < planned.segments.size(); ++i)
    require(planned.segments[i].residual.sent == again.segments[i].residual.sent, "plans hold this memory");
  (void)store.save({.process_set = 0, .names = {}, .is_all = true}, kOneHost);
}

Bytes some_residuals() {
  runtime::ResidualStore store;
  runtime::Batch batch = two_tensors();
  require(store.attach(batch).is_ok(), "two small tensors have residuals");
  batch.segments[0].residual.sent[299] = 1;
  batch.segments[0].residual.owned[0] = 2;
  return store.save({.process_set = 0, .names = {}, .is_all = true}, kOneHost);
}

// ---- records ----

void read_records(Input input) {
  const UniqueFd file(memfd_create("fuzz", 0));
  if (write(file.get(), input.data(), input.size()) != static_cast<ssize_t>(input.size())) return;
  trace::Names names;
  Result<trace::RecordReader> reader =
      trace::RecordReader::open("/proc/self/fd/" + std::to_string(file.get()), names);
  if (!reader.is_ok()) return require(!reader.status().why.empty(), "a refusal says why");
  size_t count = 0;
  while (reader.value().next() != nullptr) ++count;
  require(count <= input.size(), "a record takes a byte at least");
}

Bytes some_records() {
  std::vector<trace::RecordSlot> slots(8);
  slots[0] = trace::first_slot();
  const std::span<const std::byte> bytes = std::as_bytes(std::span(slots));
  return {bytes.begin(), bytes.end()};
}

}  // namespace

std::vector<Parser> core_parsers() {
  std::vector<Parser> all;
  add_control(all);
  add_store(all);
  add_membership(all);
  add_status(all);
  add_connections(all);
  all.push_back({"residuals", load_residuals, {some_residuals()}});
  all.push_back({"records", read_records, {some_records()}});
  return all;
}

}  // namespace rueda::fuzz
