#include "launch/branches.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

namespace rueda::launch {
namespace {

constexpr size_t kMaxWaitingBytes = 4 << 20;  // what is longer is sent all the same; see OutQueue
constexpr int kMaxLastReads = 64;             // of the stderr of an ssh that has ended

}  // namespace

Status Branches::on_message(const AgentMessage& message) {
  if (message.type == MessageType::kBranch) return start(message.payload);
  ByteReader reader(message.payload);
  const auto number = reader.get<int32_t>();
  if (!reader.is_ok()) return {Code::kInternal, "a malformed message for a branch arrived"};
  Branch* const branch = find(number);
  if (branch == nullptr || branch->is_over) return Status::ok();  // it has ended meanwhile
  AgentProcess& process = branch->process;
  if (message.type == MessageType::kToBranch) {
    if (process.in.is_open()) branch->queue.push(std::span(message.payload).subspan(sizeof(number)));
    if (process.in.is_open() && !branch->queue.flush(process.in.get())) process.in.reset();
    return Status::ok();
  }
  process.in.reset();
  const auto signal = reader.get<int32_t>();
  if (signal > 0 && !branch->wait_status) kill(process.pid, signal);
  return Status::ok();
}

Status Branches::start(std::span<const std::byte> payload) {
  Result<BranchOrder> read = decode_branch_order(payload);
  if (!read.is_ok()) return read.status();
  const BranchOrder& order = read.value();
  if (find(order.branch) != nullptr) return {Code::kInternal, "the launcher has named a branch twice"};
  Result<AgentProcess> process = start_ssh_agent(order.ssh, order.host, order.binary);
  if (!process.is_ok()) {
    send_(MessageType::kBranchEnded,
          encode(BranchEnd{.branch = order.branch, .trouble = process.status().why}));
    return Status::ok();
  }
  branches_.push_back(
      {.number = order.branch, .process = std::move(process).value(), .queue = OutQueue(kMaxWaitingBytes)});
  return Status::ok();
}

Result<AgentMessage> Branches::pass_on(const AgentMessage& message) {
  const Bytes whole = encode_message(MessageType::kForAll, message.payload);
  for (Branch& branch : branches_) {
    if (!branch.process.in.is_open()) continue;
    branch.queue.push(whole);
    if (!branch.queue.flush(branch.process.in.get())) branch.process.in.reset();
  }
  return decode_for_all(message.payload);
}

void Branches::watch(PollSet& set, bool may_read) {
  for (Branch& branch : branches_) {
    const AgentProcess& process = branch.process;
    if (may_read && process.out.is_open())
      set.watch(process.out.get(), POLLIN, [this, &branch] { read_from(branch, Stream::kStdout); });
    if (may_read && process.err.is_open())
      set.watch(process.err.get(), POLLIN, [this, &branch] { read_from(branch, Stream::kStderr); });
    if (process.in.is_open() && !branch.queue.is_empty())
      set.watch(process.in.get(), POLLOUT, [&branch] {
        UniqueFd& in = branch.process.in;
        if (in.is_open() && !branch.queue.flush(in.get())) in.reset();
      });
  }
}

// One piece a turn, so that no branch keeps the others waiting.
void Branches::read_from(Branch& branch, Stream stream) {
  UniqueFd& fd = stream == Stream::kStdout ? branch.process.out : branch.process.err;
  if (!fd.is_open()) return;
  std::array<std::byte, kMaxOutputBytes> chunk;
  const ssize_t size = read(fd.get(), chunk.data(), chunk.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (size <= 0) {
    fd.reset();
    return look_for_end(branch);
  }
  send_(MessageType::kFromBranch,
        encode(BranchPart{.branch = branch.number,
                          .stream = stream,
                          .bytes = std::span(chunk).first(static_cast<size_t>(size))}));
}

bool Branches::on_reaped(pid_t pid, int wait_status) {
  const auto is_its = [pid](const Branch& one) { return one.process.pid == pid && !one.wait_status; };
  const auto branch = std::ranges::find_if(branches_, is_its);
  if (branch == branches_.end()) return false;
  branch->wait_status = wait_status;
  look_for_end(*branch);
  return true;
}

// Its ssh has ended, and all that the agent has said was read. The stderr of ssh may stay open longer, in a
// master of several connections.
void Branches::look_for_end(Branch& branch) {
  if (branch.is_over || !branch.wait_status || branch.process.out.is_open()) return;
  branch.is_over = true;
  std::array<std::byte, 4096> chunk;
  for (int reads = 0; reads < kMaxLastReads && branch.process.err.is_open(); ++reads) {
    const ssize_t size = read(branch.process.err.get(), chunk.data(), chunk.size());
    if (size <= 0) break;
    send_(MessageType::kFromBranch,
          encode(BranchPart{.branch = branch.number,
                            .stream = Stream::kStderr,
                            .bytes = std::span(chunk).first(static_cast<size_t>(size))}));
  }
  branch.process.err.reset();
  branch.process.in.reset();
  send_(MessageType::kBranchEnded,
        encode(BranchEnd{.branch = branch.number, .wait_status = *branch.wait_status}));
}

void Branches::close() {
  for (Branch& branch : branches_) branch.process.in.reset();
}

bool Branches::are_over() const { return std::ranges::all_of(branches_, &Branch::is_over); }

std::vector<pid_t> Branches::running() const {
  std::vector<pid_t> pids;
  for (const Branch& branch : branches_)
    if (!branch.wait_status) pids.push_back(branch.process.pid);
  return pids;
}

Branches::Branch* Branches::find(int32_t number) {
  const auto branch = std::ranges::find(branches_, number, &Branch::number);
  return branch == branches_.end() ? nullptr : &*branch;
}

}  // namespace rueda::launch
