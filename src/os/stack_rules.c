/* From .eh_frame to a rule: see stack_rules.h.
 *
 * .eh_frame_hdr has a sorted table of functions' starts, each with its entry (FDE) in .eh_frame; an
 * entry names what several have in common (CIE). Both are programs, whose instructions change what
 * is known from one address to the next: they are run up to the return address.
 *
 * Every read is where the object is readable. What is not as expected is STACK_UNKNOWN.
 */
#include "os/stack_rules.h"

#include <string.h>

#if defined(__x86_64__)
enum { FRAME_REGISTER = 6, STACK_REGISTER = 7, RETURN_REGISTER = 16 };
#else
enum { FRAME_REGISTER = 29, STACK_REGISTER = 31, RETURN_REGISTER = 30 };
#endif

enum {
    KEPT_STATES = 8, /* of DW_CFA_remember_state */
    WORD = 8,
    ENCODED_ABSOLUTE = 0x00,
    ENCODED_SIGNED_4 = 0x0b,
    ENCODED_UNSIGNED_4 = 0x03,
    ENCODED_FROM_HERE = 0x10,
    ENCODED_FROM_TABLE = 0x30,
};

/* The instructions, by their names in DWARF. */
enum {
    CFA_ADVANCE = 0x40, /* and three kinds with an operand in their low bits */
    CFA_OFFSET = 0x80,
    CFA_RESTORE = 0xc0,
    CFA_NOP = 0x00,
    CFA_ADVANCE_1 = 0x02, /* by one, two and four bytes */
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
    CFA_VALUE_EXPRESSION = 0x16, /* two kinds of value offsets before it */
    CFA_SIGNED_RETURN = 0x2d,    /* aarch64: the return address is signed, or no more */
    CFA_ARGUMENTS_SIZE = 0x2e,
};
enum { OPERATION_LOAD = 0x06, OPERATION_REGISTER = 0x70 }; /* + its number, then an offset */

struct reader {
    uintptr_t at, end;
    bool failed;
};

/* Where a register's value before the call is. */
enum place { PLACE_KEPT, PLACE_AT_CFA, PLACE_AT_FRAME, PLACE_NOWHERE, PLACE_OTHER };
struct saved {
    enum place place;
    int64_t offset;
};

struct state {
    uint64_t cfa_register; /* STACK_REGISTER or FRAME_REGISTER, else it is unknown */
    int64_t cfa_offset;
    bool cfa_loads; /* what lies there, rather than the address itself */
    bool cfa_unknown;
    struct saved frame_pointer, return_address, stack_pointer;
};

struct common {
    uint64_t code_factor;
    int64_t data_factor;
    uint8_t encoding; /* of addresses in its entries */
    bool augmented;   /* its entries have data of their own */
    struct reader program;
};

struct program {
    struct reader code;
    const struct common *common;
    uintptr_t at, until;
    struct state now, first; /* the first: after the common part */
    struct state kept[KEPT_STATES];
    unsigned kept_count;
    bool unknown;
};

static uint64_t read(struct reader *from, unsigned bytes)
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

static int64_t read_signed_4(struct reader *from) { return (int32_t)(uint32_t)read(from, 4); }

static void skip(struct reader *from, uint64_t bytes)
{
    if (from->end - from->at < bytes)
        from->failed = true;
    else
        from->at += bytes;
}

static uint64_t read_leb(struct reader *from, bool is_signed)
{
    uint64_t value = 0;
    uint64_t byte;
    unsigned shift = 0;
    do {
        byte = read(from, 1);
        if (shift < 64)
            value |= (byte & 0x7f) << shift;
        shift += 7;
    } while (byte & 0x80);
    if (is_signed && shift < 64 && (byte & 0x40))
        value |= ~(uint64_t)0 << shift;
    return value;
}

static uint64_t read_unsigned(struct reader *from) { return read_leb(from, false); }
static int64_t read_signed(struct reader *from) { return (int64_t)read_leb(from, true); }

/* An address, as compilers and linkers write it. */
static uintptr_t read_address(struct reader *from, uint8_t encoding)
{
    uintptr_t here = from->at;
    if (encoding == (ENCODED_FROM_HERE | ENCODED_SIGNED_4))
        return here + (uintptr_t)read_signed_4(from);
    if (encoding == ENCODED_ABSOLUTE)
        return read(from, WORD);
    from->failed = true;
    return 0;
}

/* The part of .eh_frame that begins there, without its length. */
static struct reader entry_at(uintptr_t address, const struct stack_object *object)
{
    struct reader entry = {.at = address, .end = object->readable_to};
    if (address < object->readable_from || address >= object->readable_to) {
        entry.failed = true;
        return entry;
    }
    uint64_t length = read(&entry, 4);
    if (length == 0 || length > entry.end - entry.at)
        entry.failed = true; /* 64-bit lengths are longer than any object */
    else
        entry.end = entry.at + length;
    return entry;
}

/* False: of a kind that is not known here, such as that of signals' frames. */
static bool read_augmentation(struct reader *from, const char *letters, struct common *common)
{
    if (letters[0] == '\0')
        return true;
    if (letters[0] != 'z')
        return false;
    common->augmented = true;
    uint64_t length = read_unsigned(from);
    if (length > from->end - from->at)
        return false;
    struct reader data = {.at = from->at, .end = from->at + length};
    skip(from, length);
    for (const char *letter = letters + 1; *letter != '\0'; letter++)
        if (*letter == 'R') {
            common->encoding = (uint8_t)read(&data, 1);
        } else if (*letter == 'L') {
            (void)read(&data, 1);
        } else if (*letter == 'P') {
            uint64_t encoding = read(&data, 1);
            skip(&data, (encoding & 0x0f) == ENCODED_ABSOLUTE || (encoding & 4) ? WORD : 4);
        } else if (*letter != 'B') { /* B: signed return addresses, by the other key */
            return false;
        }
    return !data.failed;
}

static bool read_common(uintptr_t address, const struct stack_object *object, struct common *common)
{
    struct reader from = entry_at(address, object);
    uint64_t identifier = read(&from, 4);
    uint64_t version = read(&from, 1);
    if (from.failed || identifier != 0 || (version != 1 && version != 3))
        return false;
    const char *letters = (const char *)from.at;
    while (!from.failed && read(&from, 1) != 0)
        ;
    *common = (struct common){.encoding = ENCODED_ABSOLUTE};
    common->code_factor = read_unsigned(&from);
    common->data_factor = read_signed(&from);
    uint64_t return_register = version == 1 ? read(&from, 1) : read_unsigned(&from);
    if (from.failed || return_register != RETURN_REGISTER ||
        !read_augmentation(&from, letters, common))
        return false;
    common->program = from;
    return !from.failed;
}

static struct saved *place_of(struct state *state, uint64_t number)
{
    if (number == FRAME_REGISTER)
        return &state->frame_pointer;
    if (number == RETURN_REGISTER)
        return &state->return_address;
    return number == STACK_REGISTER ? &state->stack_pointer : NULL;
}

static void set(struct program *program, uint64_t number, enum place place, int64_t offset)
{
    struct saved *saved = place_of(&program->now, number);
    if (saved)
        *saved = (struct saved){.place = place, .offset = offset};
}

static void restore(struct program *program, uint64_t number)
{
    struct saved *saved = place_of(&program->now, number);
    if (saved)
        *saved = *place_of(&program->first, number);
}

/* The frame pointer and an offset, and then perhaps what lies there. */
struct expression {
    bool known, loads;
    int64_t offset;
};

static struct expression read_expression(struct reader *from)
{
    uint64_t length = read_unsigned(from);
    struct reader code = {.at = from->at, .end = from->at + length};
    struct expression expression = {.known = false};
    if (length > from->end - from->at) {
        from->failed = true;
        return expression;
    }
    skip(from, length);
    bool by_frame = read(&code, 1) == OPERATION_REGISTER + FRAME_REGISTER;
    expression.offset = read_signed(&code);
    expression.loads = code.at < code.end && read(&code, 1) == OPERATION_LOAD;
    expression.known = by_frame && !code.failed && code.at == code.end;
    return expression;
}

static void define(struct program *program, uint64_t number, int64_t offset)
{
    program->now.cfa_register = number;
    program->now.cfa_offset = offset;
    program->now.cfa_loads = false;
    program->now.cfa_unknown = false;
}

static void define_by_expression(struct program *program)
{
    struct expression expression = read_expression(&program->code);
    define(program, FRAME_REGISTER, expression.offset);
    program->now.cfa_loads = expression.loads;
    program->now.cfa_unknown = !expression.known || !expression.loads;
}

static void save_by_expression(struct program *program)
{
    uint64_t number = read_unsigned(&program->code);
    struct expression expression = read_expression(&program->code);
    bool simple = expression.known && !expression.loads;
    set(program, number, simple ? PLACE_AT_FRAME : PLACE_OTHER, expression.offset);
}

/* Where the CFA is. False: none of these instructions. */
static bool run_cfa(struct program *program, uint64_t instruction)
{
    struct reader *code = &program->code;
    struct state *now = &program->now;
    int64_t factor = program->common->data_factor;
    uint64_t number = now->cfa_register;
    switch (instruction) {
    case CFA_DEFINE:
        number = read_unsigned(code);
        define(program, number, (int64_t)read_unsigned(code));
        return true;
    case CFA_DEFINE_SIGNED:
        number = read_unsigned(code);
        define(program, number, read_signed(code) * factor);
        return true;
    case CFA_DEFINE_REGISTER:
        now->cfa_register = read_unsigned(code);
        return true;
    case CFA_DEFINE_OFFSET:
        now->cfa_offset = (int64_t)read_unsigned(code);
        return true;
    case CFA_DEFINE_OFFSET_SIGNED:
        now->cfa_offset = read_signed(code) * factor;
        return true;
    case CFA_DEFINE_EXPRESSION:
        define_by_expression(program);
        return true;
    default:
        return false;
    }
}

/* Where registers are. False: none of these instructions. */
static bool run_register(struct program *program, uint64_t instruction)
{
    struct reader *code = &program->code;
    int64_t factor = program->common->data_factor;
    uint64_t number;
    if (instruction == CFA_EXPRESSION) {
        save_by_expression(program);
        return true;
    }
    if ((instruction < CFA_OFFSET_EXTENDED || instruction > CFA_REGISTER) &&
        (instruction < CFA_OFFSET_SIGNED || instruction > CFA_VALUE_EXPRESSION))
        return false;
    number = read_unsigned(code);
    if (instruction == CFA_OFFSET_EXTENDED)
        set(program, number, PLACE_AT_CFA, (int64_t)read_unsigned(code) * factor);
    else if (instruction == CFA_OFFSET_SIGNED)
        set(program, number, PLACE_AT_CFA, read_signed(code) * factor);
    else if (instruction == CFA_RESTORE_EXTENDED)
        restore(program, number);
    else if (instruction == CFA_UNDEFINED)
        set(program, number, PLACE_NOWHERE, 0);
    else if (instruction == CFA_SAME_VALUE)
        set(program, number, PLACE_KEPT, 0);
    else {
        set(program, number, PLACE_OTHER, 0);
        if (instruction == CFA_VALUE_EXPRESSION)
            (void)read_expression(code);
        else
            (void)read_unsigned(code); /* a register, or an offset */
    }
    return true;
}

static void run_other(struct program *program, uint64_t instruction)
{
    uint64_t factor = program->common->code_factor;
    if (instruction >= CFA_ADVANCE_1 && instruction <= CFA_ADVANCE_4) {
        unsigned bytes = 1u << (instruction - CFA_ADVANCE_1);
        program->at += read(&program->code, bytes) * factor;
    } else if (instruction == CFA_REMEMBER && program->kept_count < KEPT_STATES) {
        program->kept[program->kept_count++] = program->now;
    } else if (instruction == CFA_RECALL && program->kept_count > 0) {
        program->now = program->kept[--program->kept_count];
    } else if (instruction == CFA_ARGUMENTS_SIZE) {
        (void)read_unsigned(&program->code);
    } else if (instruction != CFA_NOP && instruction != CFA_SIGNED_RETURN) {
        program->unknown = true;
    }
}

/* As far as what it says holds before `until`. */
static bool run(struct program *program)
{
    struct reader *code = &program->code;
    while (code->at < code->end && !code->failed && !program->unknown &&
           program->at < program->until) {
        uint64_t instruction = read(code, 1);
        uint64_t operand = instruction & 0x3f;
        switch (instruction & 0xc0) {
        case CFA_ADVANCE:
            program->at += operand * program->common->code_factor;
            break;
        case CFA_OFFSET: {
            int64_t offset = (int64_t)read_unsigned(code) * program->common->data_factor;
            set(program, operand, PLACE_AT_CFA, offset);
            break;
        }
        case CFA_RESTORE:
            restore(program, operand);
            break;
        default:
            if (!run_cfa(program, instruction) && !run_register(program, instruction))
                run_other(program, instruction);
        }
    }
    return !code->failed && !program->unknown;
}

/* Whether the offset is a number of words that a field of a rule holds. */
static bool fits(int64_t offset)
{
    return offset % WORD == 0 && offset / WORD >= INT16_MIN && offset / WORD <= INT16_MAX;
}

static struct stack_rule rule_of(const struct state *state)
{
    const struct saved *frame = &state->frame_pointer;
    const struct stack_rule unknown = {.step = STACK_UNKNOWN};
    if (state->return_address.place == PLACE_NOWHERE)
        return (struct stack_rule){.step = STACK_END};
    if (state->cfa_unknown || state->return_address.place != PLACE_AT_CFA ||
        state->stack_pointer.place != PLACE_KEPT || frame->place == PLACE_OTHER ||
        !fits(state->cfa_offset) || !fits(state->return_address.offset) || !fits(frame->offset))
        return unknown;
    struct stack_rule rule = {.cfa = (int16_t)(state->cfa_offset / WORD),
                              .return_address = (int16_t)(state->return_address.offset / WORD),
                              .frame_pointer = (int16_t)(frame->offset / WORD)};
    rule.frame_pointer_kind = frame->place == PLACE_AT_CFA     ? FRAME_POINTER_BY_CFA
                              : frame->place == PLACE_AT_FRAME ? FRAME_POINTER_BY_FRAME
                                                               : FRAME_POINTER_KEPT;
    if (state->cfa_register == STACK_REGISTER)
        rule.step = STACK_BY_STACK;
    else if (state->cfa_register == FRAME_REGISTER)
        rule.step = state->cfa_loads ? STACK_BY_POINTER : STACK_BY_FRAME;
    return rule.step == STACK_UNKNOWN ? unknown : rule;
}

/* The address of the last entry for a function that begins at the address or before it, 0 where
 * there is none. False: no such table. */
static bool find_entry(uintptr_t address, const struct stack_object *object, uintptr_t *entry)
{
    struct reader head = {.at = object->tables, .end = object->readable_to};
    if (head.at < object->readable_from || head.at >= head.end)
        return false;
    uint64_t version = read(&head, 1);
    uint64_t frame_encoding = read(&head, 1);
    uint64_t count_encoding = read(&head, 1);
    uint64_t table_encoding = read(&head, 1);
    (void)read(&head, 4); /* where .eh_frame is */
    uint64_t count = read(&head, 4);
    if (head.failed || version != 1 || (frame_encoding & 0x0f) != ENCODED_SIGNED_4 ||
        count_encoding != ENCODED_UNSIGNED_4 ||
        table_encoding != (ENCODED_FROM_TABLE | ENCODED_SIGNED_4) ||
        count > (head.end - head.at) / 8)
        return false;
    const int32_t *table = (const int32_t *)head.at; /* start and entry, from the tables' start */
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

/* Code of no entry ends the stack for the C runtime, unless it is the return from a signal. */
static struct stack_rule rule_without_entry(uintptr_t address)
{
#if defined(__x86_64__)
    static const uint8_t from_signal[] = {0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05};
#else
    static const uint8_t from_signal[] = {0x68, 0x11, 0x80, 0xd2, 0x01, 0, 0, 0xd4};
#endif
    bool returns = memcmp((const void *)address, from_signal, sizeof from_signal) == 0;
    return (struct stack_rule){.step = returns ? STACK_UNKNOWN : STACK_END};
}

struct stack_rule stack_rule_of(uintptr_t return_address, const struct stack_object *object)
{
    const struct stack_rule unknown = {.step = STACK_UNKNOWN};
    uintptr_t call = return_address - 1; /* what lies behind a call may be another function */
    uintptr_t found;
    if (return_address + 16 > object->end || !find_entry(call, object, &found))
        return unknown;
    if (found == 0)
        return rule_without_entry(return_address);
    struct reader entry = entry_at(found, object);
    uintptr_t here = entry.at;
    uint64_t back = read(&entry, 4);
    struct common common;
    if (entry.failed || !read_common(here - back, object, &common))
        return unknown;
    uintptr_t start = read_address(&entry, common.encoding);
    uint64_t length = read(&entry, common.encoding == ENCODED_ABSOLUTE ? WORD : 4);
    if (common.augmented)
        skip(&entry, read_unsigned(&entry));
    if (entry.failed || call < start)
        return unknown;
    if (call - start >= length)
        return rule_without_entry(return_address);
    struct program program = {.code = common.program, .common = &common, .at = 0, .until = 1};
    program.now.cfa_unknown = true;
    if (!run(&program))
        return unknown;
    program.first = program.now;
    program.code = entry;
    program.at = start;
    program.until = return_address;
    return run(&program) ? rule_of(&program.now) : unknown;
}
