// One channel of a link: cuts messages into numbered pieces, sends as many as the window allows, puts
// arriving pieces in order, and gives each to the receive that waits for it. Engine thread only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "rueda/transport/reassembly.h"
#include "rueda/transport/requests.h"
#include "rueda/transport/transport.h"
#include "rueda/transport/ucx/bounce_buffers.h"
#include "rueda/transport/ucx/piece.h"
#include "rueda/transport/ucx/worker.h"

namespace rueda::transport {

// What the channels of one link share.
struct UcxWire {
  UcxWorker* worker = nullptr;
  BounceBuffers* bounce_buffers = nullptr;
  ucx::Peer* peer = nullptr;  // null: not connected yet, or no longer
  UcxToken token{};           // that the peer wants to see
  uint32_t me = 0;            // rank
  size_t open_count = 0;      // operations of this link that UCX has not completed
};

class UcxChannel final : public Endpoint {
 public:
  UcxChannel(ChannelName name, UcxWire& wire, Outcome& outcome)
      : name_(name), wire_(wire), outcome_(outcome), requests_(outcome) {}

  void send(Ticket ticket, std::span<const std::byte> bytes) override;
  void recv(Ticket ticket, std::span<std::byte> bytes) override;
  void recv_into(Ticket ticket, size_t bytes, size_t unit_bytes, Consumer& consumer) override;
  size_t withdraw(size_t receives) override;

  // A message of the peer for this channel: a piece or counts. Does no work yet. Fails if it breaks the
  // protocol.
  Status on_message(const PieceHeader& header, ActiveMessage& active_message);
  // Sends, receives and completes what is possible. Fails if the peer broke the protocol. True: it moved.
  Result<bool> progress();
  [[nodiscard]] bool has_work() const;

  // The last words: asks the peer to confirm what has been sent.
  void ask_for_report();
  [[nodiscard]] bool is_confirmed() const { return peer_arrived_ == next_piece_; }

  // The peer is gone. What has arrived can still be received, unless the channel has failed. When somebody
  // wants more, the loss is reported, and the channel ends with this reason as soon as no operation of the
  // link is open.
  void hang_up(const Status& why, bool has_failed);
  [[nodiscard]] bool is_ended() const { return requests_.is_ended(); }
  // Gives back what has arrived and was not received. Before the worker ends.
  void drop_arrivals();
  // Completes open tickets. No operation of the link may be open, unless the worker has ended.
  void end(const Status& why);
  void lose(const Status& why);  // the same, and reports a loss

 private:
  struct OutPiece {
    PieceHeader header;
    UcxOperation operation;
    bool is_last = false;  // of its message
  };
  struct InPiece {
    bool is_here = false;
    bool is_last = false;
    uint32_t sequence = 0;
    uint64_t message_bytes = 0;
    size_t offset = 0;
    ActiveMessage active_message;
    std::byte* bounce = nullptr;  // where a consumer's piece is fetched to
    UcxOperation operation;
  };
  static size_t slot(uint32_t piece) { return piece % kUcxWindow; }

  Status complete_sends(bool& is_moved);
  bool send_pieces();
  void send_piece();
  void send_counts();
  [[nodiscard]] PieceHeader make_header(PieceKind kind) const;

  [[nodiscard]] bool may_send() const;
  [[nodiscard]] bool may_match() const;  // a piece and a receive wait for one another
  [[nodiscard]] bool are_counts_due() const;
  Status match(bool& is_moved);
  void take(InPiece& piece, const RecvRequest& request);
  Status deliver(bool& is_moved);
  void hand_over(InPiece& piece, const RecvRequest& request);
  Status accept_counts(const PieceHeader& header);
  Status accept_piece(const PieceHeader& header, ActiveMessage& active_message);
  [[nodiscard]] bool is_exhausted() const;
  void report_loss();
  [[nodiscard]] Status broken(const std::string& how) const;

  ChannelName name_;
  UcxWire& wire_;
  Outcome& outcome_;
  Requests requests_;
  Status why_hung_up_;  // not ok: the peer is gone
  bool has_failed_ = false, is_loss_reported_ = false;

  // Sending. Pieces [oldest_, next_piece_) have slots.
  std::array<OutPiece, kUcxWindow> out_;
  uint32_t oldest_ = 0, next_piece_ = 0;
  uint32_t peer_arrived_ = 0, peer_consumed_ = 0;
  size_t cut_messages_ = 0;  // of requests_.sends: how many are cut and sent to the end
  size_t cut_bytes_ = 0;     // of the next one
  uint32_t send_sequence_ = 0;
  OutPiece counts_;  // the report or question under way
  bool is_question_due_ = false;
  bool is_asked_ = false;   // the peer wants a report
  uint32_t report_at_ = 0;  // when so many pieces have arrived

  // Receiving. Pieces [consumed_, matched_) have found their receives.
  std::array<InPiece, kUcxWindow> in_;
  uint32_t arrived_ = 0, matched_ = 0, consumed_ = 0, reported_ = 0;
  size_t matched_messages_ = 0;  // of requests_.recvs: how many have all their pieces
  size_t matched_bytes_ = 0;     // of the next one
  bool has_begun_ = false;       // the next one has its first piece
  uint32_t match_sequence_ = 0;  // of that one
  Reassembly reassembly_;
};

}  // namespace rueda::transport
