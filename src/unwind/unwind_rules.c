/* Objects of code, and the interpreter of .eh_frame: see unwind_rules.h.
 *
 * .eh_frame_hdr has a sorted table of the starts of functions, each with its entry (FDE) in
 * .eh_frame. An entry names a common part of several entries (CIE). Both are programs whose
 * instructions change the state from one address to the next; they are run up to the return
 * address.
 *
 * Each read is within the readable range of the object. Unexpected data results in
 * UNWIND_UNKNOWN.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* _dl_find_object */
#endif
#include "unwind/unwind_rules.h"

#include <dlfcn.h>
#include <link.h>
#include <string.h>
#include <sys/auxv.h>

#if defined(__x86_64__)
enum { FRAME_REGISTER = 6, UNWIND_REGISTER = 7, RETURN_REGISTER = 16 };
#else
enum { FRAME_REGISTER = 29, UNWIND_REGISTER = 31, RETURN_REGISTER = 30 };
#endif

enum {
    KEPT_STATES = 8, /* states that DW_CFA_remember_state can store */
    WORD = 8,
    ENCODED_ABSOLUTE = 0x00,
    ENCODED_SIGNED_4 = 0x0b,
    ENCODED_UNSIGNED_4 = 0x03,
    ENCODED_FROM_HERE = 0x10,
    ENCODED_FROM_TABLE = 0x30,
};

/* The instructions of DWARF. */
enum {
    CFA_ADVANCE = 0x40, /* these three have an operand in their low bits */
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
    CFA_NOP = 0x00,
    CFA_ADVANCE_1 = 0x02, /* operand of one byte; two and four bytes follow */
    CFA_ADVANCE_4 = 0x04,
    CFA_OFFSET_EXTENDED = 0x05,
    CFA_RESTORE_EXTENDED,
    CFA_UNDEFINED,
    CFA_SAME_VALUE,
    CFA_REGISTER,
    CFA_REMEMBER,
    CFA_RECALL,
    CFA_DEFINE,
    CFA_DEFINE_REGISTER,
    CFA_DEFINE_OFFSET,
    CFA_DEFINE_EXPRESSION,
    CFA_EXPRESSION,
    CFA_OFFSET_SIGNED,
    CFA_DEFINE_SIGNED,
    CFA_DEFINE_OFFSET_SIGNED,
    CFA_VALUE_EXPRESSION = 0x16, /* preceded by two kinds of value offsets */
    CFA_SIGNED_RETURN = 0x2d,    /* aarch64: switches whether the return address is signed */
    CFA_ARGUMENTS_SIZE = 0x2e,
};
/* OPERATION_REGISTER + number of the register, then an offset */
enum { OPERATION_LOAD = 0x06, OPERATION_REGISTER = 0x70 };

/* A position in a readable range; `failed` once a read was beyond its end. */
struct reader {
    uintptr_t at, end;
    bool failed;
};

/* The place of a register's value before the call. */
enum place { PLACE_KEPT, PLACE_AT_CFA, PLACE_AT_FRAME, PLACE_NOWHERE, PLACE_OTHER };
struct saved {
    enum place place;
    int64_t offset;
};

struct state {
    uint64_t cfa_register; /* UNWIND_REGISTER or FRAME_REGISTER; any other: no rule */
    int64_t cfa_offset;
    bool cfa_loads; /* the CFA is the word at that address, not the address itself */
    bool cfa_unknown;
    struct saved frame_pointer, return_address, stack_pointer;
};

struct common {
    uint64_t code_factor;
    int64_t data_factor;
    uint8_t encoding; /* encoding of addresses in its entries */
    bool augmented;   /* its entries have augmentation data */
    struct reader program;
};

struct program {
    struct reader code;
    const struct common *common;
    uintptr_t at, until;
    struct state now, first; /* `first`: state after the common part */
    struct state kept[KEPT_STATES];
    unsigned kept_count;
    bool unknown;
};

static uint64_t unwind_read(struct reader *from, unsigned bytes)
{
    uint64_t value = 0;
    if (from->failed || from->end - from->at < bytes) {
        from->failed = true;
        return 0;
    }
    memcpy(&value, (const void *)from->at, bytes);
    from->at += bytes;
    return value;
}

static int64_t unwind_read_signed_4(struct reader *from)
{
    return (int32_t)(uint32_t)unwind_read(from, 4);
}

static void unwind_skip(struct reader *from, uint64_t bytes)
{
    if (from->end - from->at < bytes)
        from->failed = true;
    else
        from->at += bytes;
}

static uint64_t unwind_read_leb(struct reader *from, bool is_signed)
{
    uint64_t value = 0;
    uint64_t byte;
    unsigned shift = 0;
    do {
        byte = unwind_read(from, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (is_signed && shift < 64 && (byte & 0x40))
        value |= ~(uint64_t)0 << shift;
    return value;
}

static uint64_t unwind_read_unsigned(struct reader *from) { return unwind_read_leb(from, false); }
static int64_t unwind_read_signed(struct reader *from)
{
    return (int64_t)unwind_read_leb(from, true);
}

/* Reads an address in one of the two encodings that compilers and linkers use. */
static uintptr_t unwind_read_address(struct reader *from, uint8_t encoding)
{
    uintptr_t here = from->at;
    if (encoding == (ENCODED_FROM_HERE | ENCODED_SIGNED_4))
        return here + (uintptr_t)unwind_read_signed_4(from);
    if (encoding == ENCODED_ABSOLUTE)
        return unwind_read(from, WORD);
    from->failed = true;
    return 0;
}

/* The part of .eh_frame that begins at an address, without its length. */
static struct reader unwind_entry_at(uintptr_t address, const struct unwind_object *object)
{
    struct reader entry = {.at = address, .end = object->readable_to};
    if (address < object->readable_from || address >= object->readable_to) {
        entry.failed = true;
        return entry;
    }
    uint64_t length = unwind_read(&entry, 4);
    if (length == 0 || length > entry.end - entry.at)
        entry.failed = true; /* the mark of a 64-bit length is longer than any object */
    else
        entry.end = entry.at + length;
    return entry;
}

/* Reads the augmentation of a common part.
 * Returns: false for an unknown kind, such as that of signal frames. */
static bool unwind_read_augmentation(struct reader *from, const char *letters,
                                     struct common *common)
{
    if (letters[0] == '\0')
        return true;
    if (letters[0] != 'z')
        return false;
    common->augmented = true;
    uint64_t length = unwind_read_unsigned(from);
    if (length > from->end - from->at)
        return false;
    struct reader data = {.at = from->at, .end = from->at + length};
    unwind_skip(from, length);
    for (const char *letter = letters + 1; *letter != '\0'; letter++)
        if (*letter == 'R') {
            common->encoding = (uint8_t)unwind_read(&data, 1);
        } else if (*letter == 'L') {
            (void)unwind_read(&data, 1);
        } else if (*letter == 'P') {
            uint64_t encoding = unwind_read(&data, 1);
            unwind_skip(&data, (encoding & 0x0f) == ENCODED_ABSOLUTE || (encoding & 4) ? WORD : 4);
        } else if (*letter != 'B') { /* B: return addresses are signed with the other key */
            return false;
        }
    return !data.failed;
}

/* Reads the common part of entries.
 * Returns: false when it has an unknown form. */
static bool unwind_read_common(uintptr_t address, const struct unwind_object *object,
                               struct common *common)
{
    struct reader from = unwind_entry_at(address, object);
    uint64_t identifier = unwind_read(&from, 4);
    uint64_t version = unwind_read(&from, 1);
    if (from.failed || identifier != 0 || (version != 1 && version != 3))
        return false;
    const char *letters = (const char *)from.at;
    while (!from.failed && unwind_read(&from, 1) != 0)
        ;
    *common = (struct common){.encoding = ENCODED_ABSOLUTE};
    common->code_factor = unwind_read_unsigned(&from);
    common->data_factor = unwind_read_signed(&from);
    uint64_t return_register = version == 1 ? unwind_read(&from, 1) : unwind_read_unsigned(&from);
    if (from.failed || return_register != RETURN_REGISTER ||
        !unwind_read_augmentation(&from, letters, common))
        return false;
    common->program = from;
    return !from.failed;
}

/* The place of a register in the state; NULL for registers that a rule does not need. */
static struct saved *unwind_saved_place_of(struct state *state, uint64_t number)
{
    if (number == FRAME_REGISTER)
        return &state->frame_pointer;
    if (number == RETURN_REGISTER)
        return &state->return_address;
    return number == UNWIND_REGISTER ? &state->stack_pointer : NULL;
}

static void unwind_set(struct program *program, uint64_t number, enum place place, int64_t offset)
{
    struct saved *saved = unwind_saved_place_of(&program->now, number);
    if (saved)
        *saved = (struct saved){.place = place, .offset = offset};
}

static void unwind_restore(struct program *program, uint64_t number)
{
    struct saved *saved = unwind_saved_place_of(&program->now, number);
    if (saved)
        *saved = *unwind_saved_place_of(&program->first, number);
}

/* An expression of the only known form: frame pointer plus offset, and optionally a load from
 * there. */
struct expression {
    bool known, loads;
    int64_t offset;
};

static struct expression unwind_read_expression(struct reader *from)
{
    uint64_t length = unwind_read_unsigned(from);
    struct reader code = {.at = from->at, .end = from->at + length};
    struct expression expression = {.known = false};
    if (length > from->end - from->at) {
        from->failed = true;
        return expression;
    }
    unwind_skip(from, length);
    bool by_frame = unwind_read(&code, 1) == OPERATION_REGISTER + FRAME_REGISTER;
    expression.offset = unwind_read_signed(&code);
    expression.loads = code.at < code.end && unwind_read(&code, 1) == OPERATION_LOAD;
    expression.known = by_frame && !code.failed && code.at == code.end;
    return expression;
}

static void unwind_define(struct program *program, uint64_t number, int64_t offset)
{
    program->now.cfa_register = number;
    program->now.cfa_offset = offset;
    program->now.cfa_loads = false;
    program->now.cfa_unknown = false;
}

static void unwind_define_by_expression(struct program *program)
{
    struct expression expression = unwind_read_expression(&program->code);
    unwind_define(program, FRAME_REGISTER, expression.offset);
    program->now.cfa_loads = expression.loads;
    program->now.cfa_unknown = !expression.known || !expression.loads;
}

static void unwind_save_by_expression(struct program *program)
{
    uint64_t number = unwind_read_unsigned(&program->code);
    struct expression expression = unwind_read_expression(&program->code);
    bool simple = expression.known && !expression.loads;
    unwind_set(program, number, simple ? PLACE_AT_FRAME : PLACE_OTHER, expression.offset);
}

/* Runs an instruction that defines the CFA.
 * Returns: false for any other instruction. */
static bool unwind_run_cfa(struct program *program, uint64_t instruction)
{
    struct reader *code = &program->code;
    struct state *now = &program->now;
    int64_t factor = program->common->data_factor;
    uint64_t number = now->cfa_register;
    switch (instruction) {
    case CFA_DEFINE:
        number = unwind_read_unsigned(code);
        unwind_define(program, number, (int64_t)unwind_read_unsigned(code));
        return true;
    case CFA_DEFINE_SIGNED:
        number = unwind_read_unsigned(code);
        unwind_define(program, number, unwind_read_signed(code) * factor);
        return true;
    case CFA_DEFINE_REGISTER:
        now->cfa_register = unwind_read_unsigned(code);
        return true;
    case CFA_DEFINE_OFFSET:
        now->cfa_offset = (int64_t)unwind_read_unsigned(code);
        return true;
    case CFA_DEFINE_OFFSET_SIGNED:
        now->cfa_offset = unwind_read_signed(code) * factor;
        return true;
    case CFA_DEFINE_EXPRESSION:
        unwind_define_by_expression(program);
        return true;
    default:
        return false;
    }
}

/* Runs an instruction that defines the place of a register.
 * Returns: false for any other instruction. */
static bool unwind_run_register(struct program *program, uint64_t instruction)
{
    struct reader *code = &program->code;
    int64_t factor = program->common->data_factor;
    uint64_t number;
    if (instruction == CFA_EXPRESSION) {
        unwind_save_by_expression(program);
        return true;
    }
    if ((instruction < CFA_OFFSET_EXTENDED || instruction > CFA_REGISTER) &&
        (instruction < CFA_OFFSET_SIGNED || instruction > CFA_VALUE_EXPRESSION))
        return false;
    number = unwind_read_unsigned(code);
    if (instruction == CFA_OFFSET_EXTENDED)
        unwind_set(program, number, PLACE_AT_CFA, (int64_t)unwind_read_unsigned(code) * factor);
    else if (instruction == CFA_OFFSET_SIGNED)
        unwind_set(program, number, PLACE_AT_CFA, unwind_read_signed(code) * factor);
    else if (instruction == CFA_RESTORE_EXTENDED)
        unwind_restore(program, number);
    else if (instruction == CFA_UNDEFINED)
        unwind_set(program, number, PLACE_NOWHERE, 0);
    else if (instruction == CFA_SAME_VALUE)
        unwind_set(program, number, PLACE_KEPT, 0);
    else {
        unwind_set(program, number, PLACE_OTHER, 0);
        if (instruction == CFA_VALUE_EXPRESSION)
            (void)unwind_read_expression(code);
        else
            (void)unwind_read_unsigned(code); /* the operand is a register or an offset */
    }
    return true;
}

/* Runs any other instruction. */
static void unwind_run_other(struct program *program, uint64_t instruction)
{
    uint64_t factor = program->common->code_factor;
    if (instruction >= CFA_ADVANCE_1 && instruction <= CFA_ADVANCE_4) {
        unsigned bytes = 1u << (instruction - CFA_ADVANCE_1);
        program->at += unwind_read(&program->code, bytes) * factor;
    } else if (instruction == CFA_REMEMBER && program->kept_count < KEPT_STATES) {
        program->kept[program->kept_count++] = program->now;
    } else if (instruction == CFA_RECALL && program->kept_count > 0) {
        program->now = program->kept[--program->kept_count];
    } else if (instruction == CFA_ARGUMENTS_SIZE) {
        (void)unwind_read_unsigned(&program->code);
    } else if (instruction != CFA_NOP && instruction != CFA_SIGNED_RETURN) {
        program->unknown = true;
    }
}

/* Runs a program as far as its instructions apply to addresses before `until`.
 * Returns: false when it has an unknown form. */
static bool unwind_run(struct program *program)
{
    struct reader *code = &program->code;
    while (code->at < code->end && !code->failed && !program->unknown &&
           program->at < program->until) {
        uint64_t instruction = unwind_read(code, 1);
        uint64_t operand = instruction & 0x3f;
        switch (instruction & 0xc0) {
        case CFA_ADVANCE:
            program->at += operand * program->common->code_factor;
            break;
        case CFA_OFFSET: {
            int64_t offset = (int64_t)unwind_read_unsigned(code) * program->common->data_factor;
            unwind_set(program, operand, PLACE_AT_CFA, offset);
            break;
        }
        case CFA_RESTORE:
            unwind_restore(program, operand);
            break;
        default:
            if (!unwind_run_cfa(program, instruction) && !unwind_run_register(program, instruction))
                unwind_run_other(program, instruction);
        }
    }
    return !code->failed && !program->unknown;
}

/* Whether the offset is a number of words that a field of a rule holds. */
static bool unwind_fits(int64_t offset)
{
    return offset % WORD == 0 && offset / WORD >= INT16_MIN && offset / WORD <= INT16_MAX;
}

/* The rule that a state describes. */
static struct unwind_rule unwind_interpret_rule(const struct state *state)
{
    const struct saved *frame = &state->frame_pointer;
    const struct unwind_rule unknown = {.step = UNWIND_UNKNOWN};
    if (state->return_address.place == PLACE_NOWHERE)
        return (struct unwind_rule){.step = UNWIND_END};
    if (state->cfa_unknown || state->return_address.place != PLACE_AT_CFA ||
        state->stack_pointer.place != PLACE_KEPT || frame->place == PLACE_OTHER ||
        !unwind_fits(state->cfa_offset) || !unwind_fits(state->return_address.offset) ||
        !unwind_fits(frame->offset))
        return unknown;
    struct unwind_rule rule = {.cfa = (int16_t)(state->cfa_offset / WORD),
                               .return_address = (int16_t)(state->return_address.offset / WORD),
                               .frame_pointer = (int16_t)(frame->offset / WORD)};
    rule.frame_pointer_kind = frame->place == PLACE_AT_CFA     ? FRAME_POINTER_BY_CFA
                              : frame->place == PLACE_AT_FRAME ? FRAME_POINTER_BY_FRAME
                                                               : FRAME_POINTER_KEPT;
    if (state->cfa_register == UNWIND_REGISTER)
        rule.step = UNWIND_BY_STACK;
    else if (state->cfa_register == FRAME_REGISTER)
        rule.step = state->cfa_loads ? UNWIND_BY_POINTER : UNWIND_BY_FRAME;
    return rule.step == UNWIND_UNKNOWN ? unknown : rule;
}

/* Finds the entry of the last function that begins at or before an address; `*entry` gets 0 if
 * there is none.
 * Returns: false when the object has no such table. */
static bool unwind_find_entry(uintptr_t address, const struct unwind_object *object,
                              uintptr_t *entry)
{
    struct reader head = {.at = object->tables, .end = object->readable_to};
    if (head.at < object->readable_from || head.at >= head.end)
        return false;
    uint64_t version = unwind_read(&head, 1);
    uint64_t frame_encoding = unwind_read(&head, 1);
    uint64_t count_encoding = unwind_read(&head, 1);
    uint64_t table_encoding = unwind_read(&head, 1);
    (void)unwind_read(&head, 4); /* address of .eh_frame */
    uint64_t count = unwind_read(&head, 4);
    if (head.failed || version != 1 || (frame_encoding & 0x0f) != ENCODED_SIGNED_4 ||
        count_encoding != ENCODED_UNSIGNED_4 ||
        table_encoding != (ENCODED_FROM_TABLE | ENCODED_SIGNED_4) ||
        count > (head.end - head.at) / 8)
        return false;
    /* pairs of start and entry, relative to `tables` */
    const int32_t *table = (const int32_t *)head.at;
    uint64_t low = 0;
    uint64_t high = count;
    while (low < high) {
        uint64_t middle = low + (high - low) / 2;
        if (object->tables + (uintptr_t)(int64_t)table[2 * middle] <= address)
            low = middle + 1;
        else
            high = middle;
    }
    *entry = low == 0 ? 0 : object->tables + (uintptr_t)(int64_t)table[2 * low - 1];
    return true;
}

/* The rule for code without an entry: it ends the stack, as for the C runtime, unless it is the
 * return from a signal. */
static struct unwind_rule unwind_rule_without_entry(uintptr_t address)
{
#if defined(__x86_64__)
    static const uint8_t from_signal[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#else
    static const uint8_t from_signal[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
    bool returns = memcmp((const void *)address, from_signal, sizeof from_signal) == 0;
    return (struct unwind_rule){.step = returns ? UNWIND_UNKNOWN : UNWIND_END};
}

struct unwind_rule unwind_rule_of(uintptr_t return_address, const struct unwind_object *object)
{
    const struct unwind_rule unknown = {.step = UNWIND_UNKNOWN};
    uintptr_t call = return_address - 1; /* the address behind a call may be in another function */
    uintptr_t found;
    if (return_address + 16 > object->end || !unwind_find_entry(call, object, &found))
        return unknown;
    if (found == 0)
        return unwind_rule_without_entry(return_address);
    struct reader entry = unwind_entry_at(found, object);
    uintptr_t here = entry.at;
    uint64_t back = unwind_read(&entry, 4);
    struct common common;
    if (entry.failed || !unwind_read_common(here - back, object, &common))
        return unknown;
    uintptr_t start = unwind_read_address(&entry, common.encoding);
    uint64_t length = unwind_read(&entry, common.encoding == ENCODED_ABSOLUTE ? WORD : 4);
    if (common.augmented)
        unwind_skip(&entry, unwind_read_unsigned(&entry));
    if (entry.failed || call < start)
        return unknown;
    if (call - start >= length)
        return unwind_rule_without_entry(return_address);
    struct program program = {.code = common.program, .common = &common, .at = 0, .until = 1};
    program.now.cfa_unknown = true;
    if (!unwind_run(&program))
        return unknown;
    program.first = program.now;
    program.code = entry;
    program.at = start;
    program.until = return_address;
    return unwind_run(&program) ? unwind_interpret_rule(&program.now) : unknown;
}

/* const after unwind_objects_prepare: the segment of the program that contains its unwind
 * tables. If the program's segments have gaps, libc knows only the segment of an address, which
 * may be another one. */
static struct {
    uintptr_t from, to;
} program_tables;

struct unwind_object stack_program;

static void unwind_find_tables_of_program(void)
{
    const ElfW(Phdr) *headers = (const ElfW(Phdr) *)getauxval(AT_PHDR);
    size_t count = headers ? getauxval(AT_PHNUM) : 0;
    uintptr_t base = 0;
    uintptr_t tables = 0;
    for (size_t i = 0; i < count; i++)
        if (headers[i].p_type == PT_PHDR)
            base = (uintptr_t)headers - headers[i].p_vaddr;
        else if (headers[i].p_type == PT_GNU_EH_FRAME)
            tables = headers[i].p_vaddr;
    for (size_t i = 0; i < count; i++)
        if (headers[i].p_type == PT_LOAD && tables >= headers[i].p_vaddr &&
            tables - headers[i].p_vaddr < headers[i].p_memsz) {
            program_tables.from = base + headers[i].p_vaddr;
            program_tables.to = program_tables.from + headers[i].p_memsz;
        }
}

#ifdef DLFO_STRUCT_HAS_EH_DBASE /* defined together with _dl_find_object */
/* A number from the head and the last entry of the table, which differ between two builds of a
 * library. */
static uint64_t unwind_tag_of(const struct unwind_object *object)
{
    uint32_t head[3]; /* encodings, address of .eh_frame, number of functions */
    uint64_t last = 0;
    memcpy(head, (const void *)object->tables, sizeof head);
    uintptr_t at = object->tables + sizeof head + ((uint64_t)head[2] - 1) * sizeof last;
    if (head[2] != 0 && at + sizeof last <= object->readable_to)
        memcpy(&last, (const void *)at, sizeof last);
    uint64_t tag = (last ^ (uint64_t)head[1] << 32 ^ head[2]) * 0x9e3779b97f4a7c15u;
    /* the low bits are free for the address of code that is mixed in */
    return (tag ^ tag >> 32 ^ object->tables) << 16;
}

bool unwind_object_of(uintptr_t address, struct unwind_object *object)
{
    struct dl_find_object found;
    if (_dl_find_object((void *)address, &found) != 0)
        return false;
    object->start = (uintptr_t)found.dlfo_map_start;
    object->end = (uintptr_t)found.dlfo_map_end;
    object->tables = (uintptr_t)found.dlfo_eh_frame;
    object->readable_from = object->start;
    object->readable_to = object->end;
    if (object->tables >= program_tables.from && object->tables < program_tables.to) {
        object->readable_from = program_tables.from;
        object->readable_to = program_tables.to;
    }
    if (object->tables < object->readable_from || object->tables + 64 > object->readable_to)
        return false;
    object->tag = unwind_tag_of(object);
    return true;
}
#else
bool unwind_object_of(uintptr_t address, struct unwind_object *object)
{
    (void)address, (void)object;
    return false;
}
#endif

void unwind_objects_prepare(void)
{
    struct unwind_object object;
    unwind_find_tables_of_program();
    if (unwind_object_of(getauxval(AT_ENTRY), &object))
        stack_program = object;
}
