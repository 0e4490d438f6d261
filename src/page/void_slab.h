/* Void slabs: runs of addresses without memory, for blocks of 0 bytes in hardened builds.
 *
 * Each is a mapping of its own without permissions, in the page map by every page of it, so that
 * its slots are found, checked and freed like those of any slab, and an access to one faults. What
 * one costs is its header and its entries. They lie in no arena, so a list of them, of a fixed
 * length, serves whoever looks for all slabs.
 *
 * Threading: any thread.
 */
#ifndef CAIRN_PAGE_VOID_SLAB_H
#define CAIRN_PAGE_VOID_SLAB_H

#include "page/span.h"

bool void_slabs_each(span_visit *visit, void *context);

#endif
