#include "launch/rank_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>

#include "launch/rank_metrics.h"
#include "rueda/base/unique_fd.h"
#include "rueda/status/job_news.h"

namespace rueda::launch {

void send_result_file(const std::string& folder, Rank rank, const SendMessage& send) {
  const std::string path = fmt::format("{}/result.{}", folder, rank);
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  std::array<std::byte, kMaxOutputBytes - 64> chunk;
  for (ssize_t size = 0; file.is_open() && (size = read(file.get(), chunk.data(), chunk.size())) > 0;) {
    ByteWriter writer;
    writer.put(rank);
    writer.put_raw(std::span(chunk).first(static_cast<size_t>(size)));
    send(MessageType::kFile, writer.bytes());
  }
}

void send_metrics(const std::string& folder, Rank rank, const SendMessage& send) {
  const std::string text = read_metrics(folder, rank);
  if (text.empty()) return;
  ByteWriter writer;
  writer.put(rank);
  writer.put_raw(as_bytes(text));
  send(MessageType::kMetrics, writer.bytes());
}

void keep_news(const std::string& folder, std::span<const std::byte> payload) {
  const Result<status::JobNews> news = status::decode_job_news(payload);
  if (news.is_ok()) (void)status::write_news(folder + "/news", news.value(), monotonic_now());
}

}  // namespace rueda::launch
