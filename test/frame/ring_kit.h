// Rings that are closed at the end of their test, and frames in them.
#ifndef TEST_FRAME_RING_KIT_H
#define TEST_FRAME_RING_KIT_H

#include <memory>

#include "cairn/ring.h"
#include "frame/frame_kit.h"

namespace ring_kit
{

using namespace frame_kit;

struct Close {
    void operator()(cairn_ring *ring) const { cairn_ring_close(ring); }
};
using Ring = std::unique_ptr<cairn_ring, Close>;

inline Ring make(cairn_ring_options options = {}) { return Ring(cairn_ring_new(&options)); }

inline cairn_ring_stats stats(const Ring &ring)
{
    cairn_ring_stats result;
    cairn_ring_read_stats(ring.get(), &result);
    return result;
}

inline cairn_frame make_frame(const Ring &ring, size_t bytes)
{
    cairn_frame frame = cairn_ring_open(ring.get());
    EXPECT_NE(frame.chunk, nullptr);
    memset(cairn_ring_alloc(ring.get(), bytes, 8), 1, bytes);
    cairn_frame sealed = cairn_ring_seal(ring.get());
    EXPECT_EQ(memcmp(&frame, &sealed, sizeof frame), 0);
    return frame;
}

} // namespace ring_kit

#endif
