// rueda::Session: who joined the job leaves it.
#include <gtest/gtest.h>

#include "rueda/rueda.hpp"

namespace {

TEST(Session, does_not_shut_down_what_rueda_h_initialized) {
  ASSERT_EQ(rueda_init(nullptr), RUEDA_OK) << rueda_last_error();
  {
    rueda::Session session;
    ASSERT_TRUE(session.init().ok());
  }
  EXPECT_TRUE(rueda_is_initialized());
  rueda_shutdown();
  EXPECT_FALSE(rueda_is_initialized());
}

TEST(Session, does_not_shut_down_the_session_that_was_there_before) {
  rueda::Session outer;
  ASSERT_TRUE(outer.init().ok());
  {
    rueda::Session inner;
    ASSERT_TRUE(inner.init().ok());
  }
  EXPECT_TRUE(rueda_is_initialized());
}

TEST(Session, that_is_initialized_twice_still_shuts_down_at_its_end) {
  {
    rueda::Session session;
    ASSERT_TRUE(session.init().ok());
    ASSERT_TRUE(session.init().ok());
  }
  EXPECT_FALSE(rueda_is_initialized());
}

}  // namespace
