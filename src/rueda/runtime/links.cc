#include "rueda/runtime/links.h"

#include <poll.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "rueda/base/limits.h"
#include "rueda/base/listing.h"
#include "rueda/runtime/connect_wait.h"

namespace rueda::runtime {
namespace {

using control::MessageType;
using transport::Completion;
using transport::Ticket;

// The high byte of a ticket says whose it is; native backends use 0x01 and 0x05.
constexpr int kOwnerShift = 56;
enum class Owner : uint8_t { kSend = 2, kHeader = 3, kBody = 4 };

Ticket ticket_of(Owner owner, uint64_t value) { return (static_cast<Ticket>(owner) << kOwnerShift) | value; }
uint8_t owner_of(Ticket ticket) { return static_cast<uint8_t>(ticket >> kOwnerShift); }
Rank peer_of(Ticket ticket) { return static_cast<Rank>(ticket & 0xFFFFFFFFu); }

constexpr Nanos kInterruptCheck = 200 * kMillisecond;
// A rank that only waits to be dialled cannot know why nobody does. It gives up this much later, so that the
// rank that dials is the first to tell.
constexpr Nanos kDiallerTellsFirst = 500 * kMillisecond;
constexpr size_t kMaxListed = 6;

Status too_large(size_t bytes) {
  return {Code::kUnsupported, "a control message of " + std::to_string(bytes) +
                                  " bytes exceeds the limit of " + std::to_string(kMaxMessageBytes) +
                                  "; submit fewer tensors at once, or use smaller groups or process sets."};
}

}  // namespace

size_t data_channels(const std::vector<PeerInfo>& all) { return is_one_host(all) ? 1 : kMaxDataChannels; }

bool has_sync_channel(const std::vector<PeerInfo>& all) { return choose_nccl(all).is_used; }

Links::Links(std::vector<OpenTransport> transports, Rank me, const std::vector<PeerInfo>& all)
    : me_(me),
      all_(all),
      hierarchy_(me, all),
      data_channels_(data_channels(all) + (has_sync_channel(all) ? 1 : 0)),
      peers_(all.size()),
      routes_(std::move(transports), me, all) {}

Status Links::want_control(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (Status s = routes_.choose(peer); !s.is_ok()) return s;
  return std::exchange(p.wants_control, true) ? Status::ok() : routes_.connect(peer, kControlChannel);
}

Status Links::want_data(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (Status s = routes_.choose(peer); !s.is_ok()) return s;
  if (std::exchange(p.wants_data, true)) return Status::ok();
  for (size_t channel = 0; channel < data_channels_; ++channel)
    if (Status s = routes_.connect(peer, data_channel(channel)); !s.is_ok()) return s;
  return Status::ok();
}

bool Links::is_up(Rank peer) const {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  const auto is_missing = [](const auto& channel) { return channel == nullptr; };
  const auto data = std::span(p.data).first(data_channels_);
  if (p.wants_data && std::ranges::any_of(data, is_missing)) return false;
  return !p.wants_control || p.control != nullptr;
}

void Links::take_channels(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  transport::Transport* const transport = routes_.to(peer);
  for (size_t channel = 0; channel < data_channels_ && p.wants_data; ++channel)
    if (p.data[channel] == nullptr) p.data[channel] = transport->endpoint(peer, data_channel(channel));
  if (!p.wants_control || p.control != nullptr) return;
  p.control = transport->endpoint(peer, kControlChannel);
  if (p.control != nullptr) expect_header(peer);
}

Result<bool> Links::acquire(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (!p.wants_data) {
    if (Status s = want_data(peer); !s.is_ok()) return s;
    take_channels(peer);  // the peer may have dialled already
    if (peer > me_ && !is_up(peer)) ask_to_dial(peer);
  }
  take_channels(peer);
  return is_up(peer);
}

bool Links::take_all_channels() {
  bool is_complete = true;
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    if (is_up(peer)) continue;
    take_channels(peer);
    is_complete = is_complete && is_up(peer);
  }
  return is_complete;
}

void Links::ask_to_dial(Rank peer) {
  const Bytes request = control::encode(control::ConnectRequest{.whom = peer, .to = me_});
  send_control(hierarchy_.way_to(peer), MessageType::kConnect, request);
}

void Links::on_connect(Rank from, std::span<const std::byte> payload) {
  const auto request = control::decode_connect(payload, static_cast<Rank>(peers_.size()));
  if (!request.is_ok()) return losses_.push_back({from, kControlChannel, request.status()});
  const auto [whom, to] = request.value();
  if (whom == me_) {
    const Result<bool> begun = acquire(to);
    if (!begun.is_ok()) losses_.push_back({to, data_channel(0), begun.status()});
  } else if (const Rank way = hierarchy_.way_to(whom); way != from) {
    send_control(way, MessageType::kConnect, control::encode(request.value()));
  }
}

std::vector<Rank> Links::missing_peers() const {
  std::vector<Rank> missing;
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer)
    if (!is_up(peer)) missing.push_back(peer);
  for (const Rank peer : routes_.awaited_shares())
    if (std::ranges::find(missing, peer) == missing.end()) missing.push_back(peer);
  return missing;
}

std::string Links::trouble_with(Rank peer) const {
  const transport::Transport* const transport = routes_.to(peer);
  return transport == nullptr ? "" : transport->trouble_with(peer);
}

std::string Links::describe_missing(Rank peer) const {
  const std::string trouble = trouble_with(peer);
  return routes_.describe(peer) + ": " + (trouble.empty() ? "it has not called this rank" : trouble);
}

std::string Links::from_here_to(const std::vector<Rank>& missing) const {
  const auto one = [this](Rank peer) { return describe_missing(peer); };
  return "from " + describe(me_, all_[static_cast<size_t>(me_)]) + " to " +
         list_first(missing, kMaxListed, one);
}

std::string Links::unanswered() const {
  std::vector<Rank> missing = missing_peers();
  std::erase_if(missing, [this](Rank peer) { return trouble_with(peer).empty(); });
  return missing.empty() ? "" : from_here_to(missing);
}

Status Links::begin_connecting() {
  if (Status s = routes_.choose_all(); !s.is_ok()) return s;
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer) {
    Status begun = hierarchy_.is_met(peer) ? want_data(peer) : Status::ok();
    if (begun.is_ok() && hierarchy_.is_neighbour(peer)) begun = want_control(peer);
    if (!begun.is_ok()) return begun;
  }
  return Status::ok();
}

Status Links::connect_all(Deadline deadline, const std::function<Status()>& interrupted) {
  if (Status s = begin_connecting(); !s.is_ok()) return s;
  Nanos next_check = monotonic_now() + kInterruptCheck;
  while (true) {
    if (take_all_channels() && routes_.awaited_shares().empty()) return Status::ok();
    const bool moved = progress([](const Completion&) {});
    if (const std::vector<transport::Loss> losses = take_losses(); !losses.empty()) {
      const Rank peer = losses.front().peer;
      if (peer < 0) return losses.front().status;
      return {losses.front().status.code, "connecting to " + describe(peer, all_[static_cast<size_t>(peer)]) +
                                              " failed: " + losses.front().status.why};
    }
    const Nanos now = monotonic_now();
    if (deadline.is_past(now)) {
      if (now >= deadline.when() + kDiallerTellsFirst || !unanswered().empty())
        return no_connection(from_here_to(missing_peers()));
    }
    if (now >= next_check) {
      if (Status s = interrupted(); !s.is_ok()) return s;
      next_check = now + kInterruptCheck;
    }
    if (!moved) sleep(Deadline::at(std::min(next_check, now + 20 * kMillisecond)));
  }
}

transport::Endpoint* Links::data(Rank peer, size_t channel) const {
  return peers_[static_cast<size_t>(peer)].data[channel];
}

std::string_view Links::transport_name(Rank peer) const {
  if (peer == me_) return "self";
  const transport::Transport* const transport = routes_.to(peer);
  return transport == nullptr ? "none" : transport->name();
}

void Links::send_control(Rank peer, MessageType type, Bytes payload) {
  send_shared(peer, type, std::make_shared<const Bytes>(std::move(payload)));
}

// One buffer serves all children: the answer to an alltoall of 1,000 ranks has 8 MB.
void Links::send_control_below(MessageType type, Bytes payload) {
  const auto shared = std::make_shared<const Bytes>(std::move(payload));
  for (const Rank child : hierarchy_.children()) send_shared(child, type, shared);
}

void Links::send_shared(Rank peer, MessageType type, const std::shared_ptr<const Bytes>& payload) {
  transport::Endpoint* channel = peers_[static_cast<size_t>(peer)].control;
  if (channel == nullptr) return;          // lost or never up: the loss is reported elsewhere
  if (payload->size() > kMaxMessageBytes)  // the peer would take it for garbage
    return losses_.push_back({peer, kControlChannel, too_large(payload->size())});
  const auto header = control::encode_header({.bytes = static_cast<uint32_t>(payload->size()), .type = type});
  const auto send = [&](std::shared_ptr<const Bytes> bytes) {
    const Ticket ticket = ticket_of(Owner::kSend, next_send_++);
    const auto& owned = outgoing_[ticket] = std::move(bytes);
    channel->send(ticket, *owned);
  };
  send(std::make_shared<const Bytes>(header.begin(), header.end()));
  if (!payload->empty()) send(payload);
}

void Links::put_back_control(std::vector<ControlMessage> messages) {
  messages_.insert(messages_.begin(), std::make_move_iterator(messages.begin()),
                   std::make_move_iterator(messages.end()));
}

void Links::expect_header(Rank peer) {
  Peer& p = peers_[static_cast<size_t>(peer)];
  p.control->recv(ticket_of(Owner::kHeader, static_cast<uint64_t>(peer)), p.header);
}

void Links::on_control(const Completion& completion) {
  if (owner_of(completion.ticket) == static_cast<uint8_t>(Owner::kSend)) {
    outgoing_.erase(completion.ticket);
    return;
  }
  if (!completion.status.is_ok()) return;  // the loss of the channel is reported by the transport
  const Rank peer = peer_of(completion.ticket);
  Peer& p = peers_[static_cast<size_t>(peer)];
  if (owner_of(completion.ticket) == static_cast<uint8_t>(Owner::kHeader)) {
    const Result<control::ControlHeader> header = control::decode_header(p.header);
    if (!header.is_ok()) {
      losses_.push_back({peer, kControlChannel, header.status()});
      return;
    }
    p.parsed = header.value();
    if (p.parsed.bytes > 0) {
      p.body.resize(p.parsed.bytes);
      p.control->recv(ticket_of(Owner::kBody, static_cast<uint64_t>(peer)), p.body);
      return;
    }
    p.body.clear();
  }
  if (p.parsed.type == MessageType::kConnect)
    on_connect(peer, p.body);
  else
    messages_.push_back({peer, p.parsed.type, std::exchange(p.body, {})});
  expect_header(peer);
}

bool Links::progress(const std::function<void(const Completion&)>& on_data) {
  bool moved = false;
  for (const OpenTransport& open : routes_.transports()) {
    completions_.clear();
    moved = open.transport->progress(completions_) || moved;
    // on_control and on_data post new work on endpoints but never re-enter progress().
    for (const Completion& completion : completions_) {
      const uint8_t owner = owner_of(completion.ticket);
      const bool is_control =
          owner >= static_cast<uint8_t>(Owner::kSend) && owner <= static_cast<uint8_t>(Owner::kBody);
      is_control ? on_control(completion) : on_data(completion);
    }
  }
  return moved;
}

std::vector<transport::Loss> Links::take_losses() {
  for (const OpenTransport& open : routes_.transports()) {
    for (transport::Loss& loss : open.transport->take_losses()) losses_.push_back(std::move(loss));
  }
  for (const transport::Loss& loss : losses_) {
    if (loss.peer >= 0 && loss.channel == kControlChannel)
      peers_[static_cast<size_t>(loss.peer)].control = nullptr;
  }
  return std::exchange(losses_, {});
}

std::optional<transport::LinkUse> Links::use(Rank peer) const {
  std::optional<transport::LinkUse> total;
  for (const std::atomic<transport::Endpoint*>& each : peers_[static_cast<size_t>(peer)].data) {
    const transport::Endpoint* const channel = each;
    const auto one = channel == nullptr ? std::nullopt : channel->use();
    if (!one) continue;
    if (!total) total.emplace();
    total->sent_bytes += one->sent_bytes;
    total->busy += one->busy;
    total->pauses += one->pauses;
    total->awaited_bytes += one->awaited_bytes;
    total->awaited += one->awaited;
  }
  return total;
}

Nanos Links::round_trip(Rank peer) const {
  Nanos least = 0;
  for (const std::atomic<transport::Endpoint*>& each : peers_[static_cast<size_t>(peer)].data) {
    const transport::Endpoint* const channel = each;
    const Nanos one = channel == nullptr ? 0 : channel->round_trip();
    if (one > 0 && (least == 0 || one < least)) least = one;
  }
  return least;
}

std::optional<Nanos> Links::host_silence(Rank peer) const {
  const Peer& p = peers_[static_cast<size_t>(peer)];
  std::optional<Nanos> longest = p.control == nullptr ? std::nullopt : p.control->host_silence();
  // A parent sends on its control channels every second. On the others there may be nothing to acknowledge.
  if (longest && hierarchy_.is_child(peer)) return longest;
  for (const transport::Endpoint* const channel : p.data)
    if (channel != nullptr) longest = std::max(longest, channel->host_silence());
  return longest;
}

bool Links::prepare_sleep() {
  return std::ranges::all_of(routes_.transports(),
                             [](const OpenTransport& open) { return open.transport->prepare_sleep(); });
}

std::vector<int> Links::wake_fds() const {
  std::vector<int> fds;
  for (const OpenTransport& open : routes_.transports()) open.transport->wake_fds(fds);
  return fds;
}

void Links::sleep(Deadline deadline) {
  if (!prepare_sleep()) return;
  std::vector<pollfd> polled = polled_for_input(wake_fds());
  sleep_on(polled, deadline);
}

bool Links::are_silent() const {
  for (Rank peer = 0; peer < static_cast<Rank>(peers_.size()); ++peer)
    if (const auto* const to = routes_.to(peer); to != nullptr && !to->is_silent()) return false;
  return true;
}

std::vector<pollfd> polled_for_input(std::span<const int> fds) {
  std::vector<pollfd> polled;
  polled.reserve(fds.size());
  for (const int fd : fds) polled.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  return polled;
}

void sleep_on(std::span<pollfd> polled, Deadline deadline) {
  // An interrupted or spurious return is harmless: the caller looks for work again.
  [[maybe_unused]] const int ready = ::poll(polled.data(), polled.size(), deadline.timeout_ms());
}

void Links::abort(const Status& why) {
  for (const OpenTransport& open : routes_.transports()) open.transport->abort(why);
}

}  // namespace rueda::runtime
