#include "blockio/tag_set.h"

#include <gtest/gtest.h>

#include <set>

namespace elidefs::blockio {
namespace {

TEST(TagSet, HandsOutEachTagOnce) {
  for (const uint32_t depth : {2U, 63U, 64U, 65U, 1024U}) {
    const std::unique_ptr<TagSet> owned = TagSet::Create(nullptr, depth);
    ASSERT_NE(owned, nullptr);
    TagSet& tags = *owned;
    std::set<Request*> seen;
    for (uint32_t i = 0; i < depth; ++i) {
      Request* request = tags.Acquire();
      ASSERT_NE(request, nullptr);
      EXPECT_EQ(request->tag, i);
      EXPECT_TRUE(seen.insert(request).second);
    }
    EXPECT_EQ(tags.Acquire(), nullptr);
    EXPECT_EQ(tags.in_use(), depth);
    Request* some = *seen.begin();
    tags.Release(some);
    EXPECT_EQ(tags.Acquire(), some);
    for (Request* request : seen) tags.Release(request);
    EXPECT_EQ(tags.in_use(), 0U);
  }
}

}  // namespace
}  // namespace elidefs::blockio
