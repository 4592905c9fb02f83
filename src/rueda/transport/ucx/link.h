// All channels to one peer: a proven socket, which passed the addresses and whose end is the peer's end, and
// one UCX connection, which carries the messages. Engine thread only.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "rueda/base/clock.h"
#include "rueda/base/unique_fd.h"
#include "rueda/transport/poller.h"
#include "rueda/transport/ucx/channel.h"
#include "rueda/transport/ucx/greeting.h"

namespace rueda::transport {

class UcxLink {
 public:
  // What all links of a transport share. Outlives them.
  struct Site {
    Rank me = -1;
    UcxWorker* worker = nullptr;
    BounceBuffers* bounce_buffers = nullptr;
    Poller* poller = nullptr;
    Outcome* outcome = nullptr;
  };
  UcxLink(Rank peer, UniqueFd socket, const Site& site);
  ~UcxLink();

  // This rank wants the channel, and hears of its loss.
  void open(uint16_t channel);
  // Null until the channel is up or has ended.
  UcxChannel* endpoint(uint16_t channel);
  [[nodiscard]] bool is_up() const { return state_ == LinkState::kUp; }
  // Why it is not up yet.
  [[nodiscard]] std::string trouble() const;

  void on_socket();  // to be called after the poller was polled
  // Whether the socket has ended and the worker must be emptied before progress() acts on it.
  [[nodiscard]] bool is_hung_up() const { return is_hung_up_ && is_alive(); }
  // Whether the message carries this link's token. Then on_message() may have it.
  [[nodiscard]] bool knows(const PieceHeader& header) const { return is_equal(header.token, token_); }
  void on_message(const PieceHeader& header, ActiveMessage& active_message);
  bool progress(Nanos now);  // true: it moved
  [[nodiscard]] bool has_work() const;

  // The last words. They are heard when the peer has confirmed all that was sent, or when the link has ended.
  void ask_for_reports();
  [[nodiscard]] bool are_last_words_heard() const;

  // Gives up the UCX connection; what is open with it completes in the worker's progress().
  void disconnect();
  [[nodiscard]] bool is_drained() const { return wire_.open_count == 0; }
  // When progress() acts without an event: 0 = never.
  [[nodiscard]] Nanos next_due() const { return is_alive() ? end_deadline_ : drain_deadline(); }
  // When UCX should have completed everything that is open with a lost peer. 0: the link is not leaving.
  [[nodiscard]] Nanos drain_deadline() const { return state_ == LinkState::kLeaving ? drain_deadline_ : 0; }
  void drop_arrivals();
  void lose_all(const Status& why);  // the link must be drained, or the worker must have ended
  void end(const Status& why);       // the same without a report

 private:
  // Greeting: tokens and addresses pass. Proving: the first message must come through UCX. Leaving: the peer
  // is gone, but UCX still uses buffers. Gone: what has arrived can still be received.
  enum class LinkState : uint8_t { kGreeting, kProving, kUp, kLeaving, kGone };
  [[nodiscard]] bool is_alive() const { return state_ < LinkState::kLeaving; }

  void send_greeting();
  void read_greeting();
  void read_end();
  void hung_up(ssize_t outcome);
  void connect();
  void send_hello();
  [[nodiscard]] bool has_failed() const { return peer_error_ != ucx::kOk || !channel_error_.is_ok(); }
  [[nodiscard]] bool awaits_end(Nanos now);
  void leave(std::string how, int culprit = -1, const Status& culprit_status = {});
  void leave_because_of(uint16_t channel, const Status& why);
  UcxChannel& channel(uint16_t number);
  [[nodiscard]] bool is_open(uint16_t number) const { return (opened_ >> number & 1) != 0; }
  [[nodiscard]] ChannelName name_of(uint16_t channel) const { return {peer_, channel}; }

  const Site site_;
  const Rank peer_;
  UniqueFd socket_;
  Watch watch_;
  LinkState state_ = LinkState::kGreeting;
  bool is_hung_up_ = false, has_heard_ = false;
  std::string socket_end_;  // how it hung up
  UcxToken token_{};        // that the peer's messages must carry
  Bytes unsent_;            // of the greeting
  GreetingReader greeting_;
  UcxWire wire_;
  PieceHeader hello_;
  UcxOperation hello_operation_;
  ucx::Code8 peer_error_ = ucx::kOk;  // why UCX lost the peer
  Status channel_error_;              // why UCX did not take or bring a message …
  uint16_t failed_channel_ = 0;       // … of this channel
  Nanos end_deadline_ = 0;            // when it is certain that the socket does not end as well

  std::string how_;  // the peer ended, as in "closed its connection"
  Nanos drain_deadline_ = 0;

  std::map<uint16_t, std::unique_ptr<UcxChannel>> channels_;
  uint32_t opened_ = 0;  // bit of each channel that this rank wants
};

}  // namespace rueda::transport
