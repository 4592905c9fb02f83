#include "rueda/status/job_news.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "rueda/base/limits.h"
#include "rueda/base/unique_fd.h"

namespace rueda::status {
namespace {

constexpr Nanos kNewsLast = 3 * kSecond;  // they come once a second
// For all ranks of the largest job, each held and without an agent.
constexpr size_t kMaxFileBytes = 64 + static_cast<size_t>(kMaxRanks) * 10;

Status cannot_write(const std::string& path) {
  return {Code::kUnavailable, "cannot write " + path + ": " + std::strerror(errno)};
}

}  // namespace

Bytes encode(const JobNews& news) {
  ByteWriter writer;
  writer.put_list(news.held, [](ByteWriter& to, const HeldProcess& one) {
    to.put(one.rank);
    to.put(one.state);
  });
  writer.put_list(news.without_agent, [](ByteWriter& to, Rank rank) { to.put(rank); });
  return std::move(writer).take();
}

Result<JobNews> decode_job_news(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  JobNews news;
  news.held = reader.get_list(kMaxRanks, [](ByteReader& from) {
    const HeldProcess one{.rank = from.get<Rank>(), .state = from.get<ProcessState>()};
    if (one.rank < 0 || static_cast<int>(one.state) >= kProcessStates) from.fail();
    return one;
  });
  news.without_agent = reader.get_list(kMaxRanks, [](ByteReader& from) {
    const auto rank = from.get<Rank>();
    if (rank < 0) from.fail();
    return rank;
  });
  if (!reader.is_ok() || !reader.is_at_end())
    return Status(Code::kInvalidArgument, "these are no news of a job");
  return news;
}

// Readers see the old news or the new ones, never a part.
Status write_news(const std::string& path, const JobNews& news, Nanos now) {
  ByteWriter writer;
  writer.put(now);
  writer.put_raw(encode(news));
  const std::string unfinished = path + ".new";
  const UniqueFd file(open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  const auto bytes = writer.bytes();
  if (!file.is_open() || write(file.get(), bytes.data(), bytes.size()) != std::ssize(bytes))
    return cannot_write(unfinished);
  if (std::rename(unfinished.c_str(), path.c_str()) != 0) return cannot_write(path);
  return Status::ok();
}

std::optional<DatedNews> read_news(const std::string& path, Nanos now) {
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!file.is_open()) return std::nullopt;
  Bytes text(kMaxFileBytes);
  const ssize_t size = read(file.get(), text.data(), text.size());
  if (size < static_cast<ssize_t>(sizeof(Nanos))) return std::nullopt;
  text.resize(static_cast<size_t>(size));
  ByteReader reader(std::span<const std::byte>(text).first(sizeof(Nanos)));
  const auto at = reader.get<Nanos>();
  if (now - at > kNewsLast) return std::nullopt;
  Result<JobNews> news = decode_job_news(std::span<const std::byte>(text).subspan(sizeof(Nanos)));
  if (!news.is_ok()) return std::nullopt;
  return DatedNews{std::move(news).value(), at};
}

}  // namespace rueda::status
