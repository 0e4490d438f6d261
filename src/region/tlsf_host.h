/* What TLSF's core needs of the system beyond base/host.h's host_write_error and host_abort, with
 * which it dies: nothing else, so that those three and base/check.c are all that a program without
 * libc must bring (and the memcpy, memmove and memset that every compiler asks for).
 */
#ifndef CAIRN_REGION_TLSF_HOST_H
#define CAIRN_REGION_TLSF_HOST_H

void tlsf_note_no_memory(void); /* an allocation is about to fail; hosted: errno becomes ENOMEM */
void tlsf_note_invalid(void);   /* for a reason that memory would not cure; hosted: EINVAL */

#endif
