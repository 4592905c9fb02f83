#include "rueda/transport/sim/sim.h"

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <utility>
#include <vector>

#include "rueda/transport/connector.h"
#include "rueda/transport/reassembly.h"
#include "rueda/transport/requests.h"

namespace rueda::transport {
namespace {

struct Piece {
  uint64_t arrives_at = 0;  // tick
  Bytes bytes;
};

struct Message {
  uint64_t bytes = 0;
  std::deque<Piece> pieces;  // those under way, and those that have arrived and were not read
  Ticket ticket = 0;
};

// A message of any size is cut into at most about this many pieces, so that large ones do not take forever.
constexpr size_t kMaxPieces = 256;

}  // namespace

class SimTransport;

struct SimState {
  SimOptions options;
  std::mt19937_64 random;
  uint64_t now = 0;
  std::map<Rank, SimTransport*> ranks;

  uint64_t below(uint64_t bound) { return bound == 0 ? 0 : random() % bound; }
};

namespace {

// Each direction of a channel lives at its receiver: `inbound_` holds what the peer has sent and this side
// has not read.
class SimChannel final : public Endpoint {
 public:
  SimChannel(SimState& net, ChannelName name, Outcome& outcome)
      : net_(net), name_(name), outcome_(outcome), requests_(outcome) {}

  void send(Ticket ticket, std::span<const std::byte> bytes) override {
    requests_.post(SendRequest{ticket, bytes});
  }
  void recv(Ticket ticket, std::span<std::byte> bytes) override {
    requests_.post(RecvRequest{.ticket = ticket, .into = bytes.data(), .bytes = bytes.size()});
  }
  void recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) override {
    requests_.post(
        RecvRequest{.ticket = ticket, .bytes = bytes, .unit_bytes = unit_bytes, .consumer = &consumer});
  }
  size_t withdraw(size_t receives) override { return requests_.withdraw(receives, received_ > 0); }

  void join(SimChannel* peer) { peer_ = peer; }
  [[nodiscard]] SimChannel* peer() const { return peer_; }
  [[nodiscard]] bool is_ended() const { return requests_.is_ended(); }

  bool progress() {
    if (is_ended() || peer_ == nullptr) return false;
    const bool is_sent = send_some();
    return read_some() || is_sent;
  }

  void lose(const Status& why) {
    if (is_ended()) return;
    outcome_.losses.push_back({name_.peer, name_.channel, why});
    end(why);
  }
  // Ends both sides of the channel; the peer sees a loss.
  void end(const Status& why) {
    if (is_ended()) return;
    requests_.end(why);
    for (const Ticket ticket : std::exchange(unread_, {})) requests_.complete(ticket, why);
    if (SimChannel* peer = std::exchange(peer_, nullptr)) {
      peer->peer_ = nullptr;
      peer->lose(peer_lost(peer->name_, "closed its channel"));
    }
    inbound_.clear();
  }

 private:
  bool send_some() {
    if (requests_.sends.empty()) return false;
    const SendRequest request = requests_.sends.front();
    Message message{.bytes = request.bytes.size(), .pieces = {}, .ticket = request.ticket};
    const size_t largest = std::max(net_.options.max_piece_bytes, request.bytes.size() / kMaxPieces);
    if (net_.options.is_rendezvous) {
      requests_.sends.pop_front();  // completes when the peer has read it
      unread_.push_back(request.ticket);
    } else {
      requests_.finish_send();
    }
    uint64_t when = std::max(net_.now, last_arrival_);
    size_t at = 0;
    do {
      when += 1 + net_.below(net_.options.max_delay_ticks);
      const size_t size = std::min<size_t>(request.bytes.size() - at, 1 + net_.below(largest));
      const auto bytes = request.bytes.subspan(at, size);
      message.pieces.push_back({when, Bytes(bytes.begin(), bytes.end())});
      at += size;
    } while (at < request.bytes.size());
    last_arrival_ = when;
    peer_->inbound_.push_back(std::move(message));
    return true;
  }

  bool read_some() {
    if (requests_.recvs.empty() || inbound_.empty()) return false;
    Message& message = inbound_.front();
    const RecvRequest request = requests_.recvs.front();
    if (message.pieces.front().arrives_at > net_.now) return false;
    const MessageHeader header{.sequence = sequence_, .bytes = message.bytes};
    if (Status status = check_header(header, sequence_, request.bytes, name_); !status.is_ok()) {
      lose(status);
      return true;
    }
    Bytes piece = std::move(message.pieces.front().bytes);
    message.pieces.pop_front();
    received_ += piece.size();
    piece.insert(piece.begin(), reassembly_.size(), std::byte{});  // consumers rely on aligned units
    reassembly_.prepend_to(piece);
    reassembly_.deliver(request, received_, piece);
    if (received_ < request.bytes) return true;
    const Ticket sent = message.ticket;
    inbound_.pop_front();
    received_ = 0;
    ++sequence_;
    requests_.finish_recv();
    if (net_.options.is_rendezvous) peer_->on_read(sent);
    return true;
  }

  void on_read(Ticket ticket) {
    RUEDA_CHECK(!unread_.empty() && unread_.front() == ticket,
                "messages are read in the order they were sent");
    unread_.pop_front();
    requests_.complete(ticket, Status::ok());
  }

  SimState& net_;
  ChannelName name_;
  Outcome& outcome_;
  Requests requests_;
  SimChannel* peer_ = nullptr;
  std::deque<Message> inbound_;
  std::deque<Ticket> unread_;  // rendezvous: sends that the peer has not read
  uint64_t last_arrival_ = 0;
  size_t received_ = 0;  // of the oldest receive
  uint32_t sequence_ = 0;
  Reassembly reassembly_;
};

}  // namespace

class SimTransport final : public Transport {
 public:
  SimTransport(SimState& net, Rank rank) : net_(net), rank_(rank) { net_.ranks[rank] = this; }
  ~SimTransport() override {
    if (abort_.is_ok()) abort({Code::kShutDown, "the transport was closed."});
    net_.ranks.erase(rank_);
  }
  SimTransport(const SimTransport&) = delete;
  SimTransport& operator=(const SimTransport&) = delete;

  [[nodiscard]] std::string_view name() const override { return "sim"; }
  [[nodiscard]] std::string address() const override { return "sim:" + std::to_string(rank_); }
  [[nodiscard]] bool reaches(std::string_view peer_address) const override {
    return peer_address.starts_with("sim:");
  }

  Status connect(Rank peer, std::string_view peer_address, uint16_t channel) override {
    const ChannelName name{peer, channel};
    Identity me;
    me.rank = rank_;
    me.size = net_.options.size;
    if (!abort_.is_ok()) return abort_;
    if (Status status = check_channel(me, name); !status.is_ok()) return status;
    if (!reaches(peer_address))
      return {Code::kInvalidArgument, "'" + std::string(peer_address) + "' is no address of the simulator."};
    auto mine = std::make_unique<SimChannel>(net_, name, outcome_);
    const auto found = net_.ranks.find(peer);
    if (found != net_.ranks.end()) {
      if (SimChannel* theirs = found->second->channel({rank_, channel})) {
        mine->join(theirs);
        theirs->join(mine.get());
      }
    }
    channels_[name] = std::move(mine);
    return Status::ok();
  }

  Endpoint* endpoint(Rank peer, uint16_t channel_number) override {
    SimChannel* found = channel({peer, channel_number});
    return found != nullptr && (found->peer() != nullptr || found->is_ended()) ? found : nullptr;
  }

  // Channels take their turns in random order.
  bool progress(std::vector<Completion>& done) override {
    ++net_.now;
    std::vector<SimChannel*> order;
    for (const auto& [name, channel] : channels_) order.push_back(channel.get());
    std::shuffle(order.begin(), order.end(), net_.random);
    bool is_moved = false;
    for (SimChannel* channel : order) is_moved |= channel->progress();
    return outcome_.hand_over(done) || is_moved;
  }

  std::vector<Loss> take_losses() override { return outcome_.take_losses(); }
  bool prepare_sleep() override { return false; }  // time passes only while somebody makes progress
  void wake_fds(std::vector<int>&) const override {}

  void abort(const Status& why) override {
    abort_ = why;
    for (const auto& [name, channel] : channels_) channel->end(why);
  }

  SimChannel* channel(ChannelName name) {
    const auto it = channels_.find(name);
    return it == channels_.end() ? nullptr : it->second.get();
  }
  void die(const Status& why) {
    for (const auto& [name, channel] : channels_) {
      if (channel->peer() != nullptr) channel->peer()->lose(why);
    }
  }

 private:
  SimState& net_;
  Rank rank_;
  Outcome outcome_;
  std::map<ChannelName, std::unique_ptr<SimChannel>> channels_;
  Status abort_;
};

SimNetwork::SimNetwork(SimOptions options) : state_(std::make_unique<SimState>()) {
  state_->options = options;
  state_->random.seed(options.seed);
}

SimNetwork::~SimNetwork() {
  RUEDA_CHECK(state_->ranks.empty(), "a simulated network outlives its transports");
}

std::unique_ptr<Transport> SimNetwork::make(Rank rank) {
  RUEDA_CHECK(rank >= 0 && rank < state_->options.size && !state_->ranks.contains(rank),
              "one transport per rank");
  return std::make_unique<SimTransport>(*state_, rank);
}

void SimNetwork::drop(Rank rank, const Status& why) {
  if (const auto it = state_->ranks.find(rank); it != state_->ranks.end()) it->second->die(why);
}

uint64_t SimNetwork::ticks() const { return state_->now; }

}  // namespace rueda::transport
