// What a running rank has sent, as a file.
#include <gmock/gmock.h>

#include <fstream>
#include <iterator>

#include "timeline/record_files.h"
#include "timeline_planned_job.h"

namespace rueda::timeline::sent_record_test {
namespace {

using testing::HasSubstr;

class SentRecord : public SummaryTest {
 protected:
  static std::string bytes_of(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
};

TEST_F(SentRecord, of_all_ranks_is_summarised_like_a_job) {
  const std::string base = write({}), out = dir_ + "/now";
  for (Rank rank = 0; rank < 3; ++rank) {
    const std::string sent = bytes_of(trace::record_path(base, rank));
    const Result<std::string> path = write_record(out, rank, sent + "half of a slot");
    ASSERT_TRUE(path.is_ok()) << path.status().why;
    const size_t first = sizeof(trace::RecordSlot);  // which says whether the rank records on
    EXPECT_EQ(bytes_of(path.value()).substr(first), sent.substr(first));
  }
  EXPECT_EQ(summarize_files({out}).value().steps, 20);
}

TEST_F(SentRecord, what_is_none_is_refused_in_words_and_replaces_nothing) {
  const std::string out = dir_ + "/now";
  EXPECT_THAT(write_record(out, 3, "").status().why,
              HasSubstr("Rank 3 has sent no records; its rueda may be older"));
  EXPECT_THAT(write_record(out, 3, "it keeps no flight record (RUEDA_FLIGHT_RECORD_BYTES=0)").status().why,
              HasSubstr("Rank 3 has sent no records: it keeps no flight record"));
  std::string other = bytes_of(trace::record_path(write({}), 0));
  other[offsetof(trace::RecordSlot, b)] = 77;
  EXPECT_THAT(write_record(out, 3, other).status().why,
              HasSubstr("Rank 3 has sent version 77 of the format"));
  EXPECT_TRUE(record_files_of(out).empty());
}

}  // namespace
}  // namespace rueda::timeline::sent_record_test
