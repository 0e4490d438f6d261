// FIFOs that are closed at the end of their test.
#ifndef TEST_FRAME_FIFO_KIT_H
#define TEST_FRAME_FIFO_KIT_H

#include <memory>

#include "cairn/fifo.h"
#include "frame/frame_kit.h"

namespace fifo_kit
{

using namespace frame_kit;

struct Close {
    void operator()(cairn_fifo *fifo) const { cairn_fifo_close(fifo); }
};
using Fifo = std::unique_ptr<cairn_fifo, Close>;

inline Fifo make(cairn_fifo_options options = {}) { return Fifo(cairn_fifo_new(&options)); }

inline cairn_fifo_stats stats(const Fifo &fifo)
{
    cairn_fifo_stats result;
    cairn_fifo_read_stats(fifo.get(), &result);
    return result;
}

} // namespace fifo_kit

#endif
