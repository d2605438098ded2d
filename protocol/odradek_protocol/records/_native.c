/* The compiled twin of the record codec: `native.py` says when it is used, and why.
 *
 * The rule that keeps this file small: it takes sound records only. Whatever is wrong with the bytes, the
 * answer is None ("refused"), and the caller has the pure twin read them again, which raises the error.
 * So there is one text for every error, and nothing to keep equal but what is accepted.
 *
 * Every byte is read behind a comparison with the end of its record, which lies within the data; every
 * addition that could leave its type is checked. Only the limited API is used (CPython 3.11 and later).
 */

#define PY_SSIZE_T_CLEAN
#ifndef Py_LIMITED_API
#define Py_LIMITED_API 0x030B0000
#endif
#include <Python.h>
#include <structmember.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* What `native.py` expects: raised with every change of a signature or of what a function returns. */
#define NATIVE_ABI 8

/* A checksum of this file, from the build: a checkout whose source has moved on does not use it. */
#ifndef NATIVE_SOURCE_CRC
#define NATIVE_SOURCE_CRC 0
#endif

#define MIN_RECORD_BYTES 7
#define MAX_VARINT_BYTES 5
#define MAX_VARLONG_BYTES 10

typedef const uint8_t *at_t;

/* --- Reading one record ----------------------------------------------------------------------- */

typedef struct {
    at_t start; /* NULL for null */
    Py_ssize_t length;
} octets_t;

typedef struct {
    int64_t timestamp_delta;
    int64_t offset_delta;
    octets_t key;
    octets_t value;
    at_t headers; /* of the first one */
    Py_ssize_t header_count;
} record_t;

/* The unsigned number at *at; 0 if it does not end before `end`, is too long, or has too many bits. */
static inline int
read_raw(at_t *at, at_t end, int max_bytes, uint64_t *number)
{
    at_t p = *at;
    uint64_t raw = 0;
    for (int index = 0; index < max_bytes; index++) {
        if (p == end) {
            return 0;
        }
        uint8_t byte = *p++;
        if (index == 9 && byte > 1) {
            return 0;
        }
        raw |= (uint64_t)(byte & 0x7F) << (7 * index);
        if (byte < 0x80) {
            if (max_bytes == MAX_VARINT_BYTES && raw >> 32) {
                return 0;
            }
            *at = p;
            *number = raw;
            return 1;
        }
    }
    return 0;
}

static inline int64_t
zigzag(uint64_t raw)
{
    int64_t half = (int64_t)(raw >> 1);
    return raw & 1 ? -half - 1 : half;
}

static inline int
read_octets(at_t *at, at_t end, octets_t *octets)
{
    uint64_t raw;
    if (!read_raw(at, end, MAX_VARINT_BYTES, &raw)) {
        return 0;
    }
    if (raw & 1) { /* any negative length: Kafka takes them all for null */
        octets->start = NULL;
        octets->length = 0;
        return 1;
    }
    if ((uint64_t)(end - *at) < raw >> 1) {
        return 0;
    }
    octets->start = *at;
    octets->length = (Py_ssize_t)(raw >> 1);
    *at += raw >> 1;
    return 1;
}

static inline int
read_header(at_t *at, at_t end, octets_t *key, octets_t *value)
{
    return read_octets(at, end, key) && key->start != NULL && read_octets(at, end, value);
}

/* The record at *at, all of it checked, headers too; 0 if it is not sound. */
static inline int
read_record(at_t *at, at_t data_end, record_t *record)
{
    at_t p = *at;
    uint64_t raw;
    if (!read_raw(&p, data_end, MAX_VARINT_BYTES, &raw) || raw & 1
        || (uint64_t)(data_end - p) < raw >> 1) {
        return 0;
    }
    at_t end = p + (raw >> 1);
    if (p == end) {
        return 0;
    }
    p++; /* attributes: none are defined */
    if (!read_raw(&p, end, MAX_VARLONG_BYTES, &raw)) {
        return 0;
    }
    record->timestamp_delta = zigzag(raw);
    if (!read_raw(&p, end, MAX_VARINT_BYTES, &raw)) {
        return 0;
    }
    record->offset_delta = zigzag(raw);
    if (!read_octets(&p, end, &record->key) || !read_octets(&p, end, &record->value)
        || !read_raw(&p, end, MAX_VARINT_BYTES, &raw) || raw & 1) {
        return 0;
    }
    record->headers = p;
    record->header_count = (Py_ssize_t)(raw >> 1);
    for (Py_ssize_t left = record->header_count; left; left--) {
        octets_t key, value;
        if (!read_header(&p, end, &key, &value)) {
            return 0;
        }
    }
    *at = end;
    return p == end;
}

/* --- What a batch says, without an object for a record ------------------------------------------- */

PyDoc_STRVAR(scan_doc,
"scan(data: buffer, count: int)\n"
"-> (lowest offset delta, highest, in order, lowest timestamp delta, highest, null keys) or None\n\n"
"Exactly `count` records, at least one, that fill `data`. In order: offset deltas are 0, 1, 2, ...");

/* The bounds of what `scan` tells. */
typedef struct {
    int64_t low_offset, high_offset;
    int64_t low_time, high_time;
    int in_order, null_keys;
} bounds_t;

static int
scan_records(at_t p, at_t end, Py_ssize_t count, bounds_t *bounds)
{
    int64_t low_offset = INT64_MAX, high_offset = INT64_MIN;
    int64_t low_time = INT64_MAX, high_time = INT64_MIN;
    int in_order = 1, null_keys = 0;
    if (count <= 0 || count > (end - p) / MIN_RECORD_BYTES) {
        return 0;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        record_t record;
        if (!read_record(&p, end, &record)) {
            return 0;
        }
        int64_t offset = record.offset_delta, time = record.timestamp_delta;
        in_order &= offset == index;
        null_keys |= record.key.start == NULL;
        low_offset = offset < low_offset ? offset : low_offset;
        high_offset = offset > high_offset ? offset : high_offset;
        low_time = time < low_time ? time : low_time;
        high_time = time > high_time ? time : high_time;
    }
    *bounds = (bounds_t){low_offset, high_offset, low_time, high_time, in_order, null_keys};
    return p == end;
}

/* Smaller scans end within one or two milliseconds, and keep the lock. */
#define SCANNED_WITH_LOCK_BYTES (2 * 1024 * 1024)

static PyObject *
scan(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(arguments, "y*n:scan", &view, &count)) {
        return NULL;
    }
    bounds_t bounds;
    at_t start = view.buf;
    int sound;
    if (view.len <= SCANNED_WITH_LOCK_BYTES) {
        sound = scan_records(start, start + view.len, count, &bounds);
    } else {
        /* Millions of records in a thread must not stop the event loop. */
        Py_BEGIN_ALLOW_THREADS
        sound = scan_records(start, start + view.len, count, &bounds);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    if (!sound) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(LLiLLi)", (long long)bounds.low_offset, (long long)bounds.high_offset,
                         bounds.in_order, (long long)bounds.low_time, (long long)bounds.high_time,
                         bounds.null_keys);
}

/* The data of a bytes object, if so many records can be in it. */
static int
open_body(PyObject *data, Py_ssize_t count, at_t *start, at_t *end)
{
    char *bytes;
    Py_ssize_t size;
    if (PyBytes_AsStringAndSize(data, &bytes, &size) < 0) {
        return 0;
    }
    *start = (at_t)bytes;
    *end = *start + size;
    return count >= 0 && count <= size / MIN_RECORD_BYTES;
}

static PyObject *
refused(void)
{
    if (PyErr_Occurred()) {
        return NULL;
    }
    Py_RETURN_NONE;
}

/* --- Columns of Python objects ------------------------------------------------------------------ */

static PyObject *
new_bytes(octets_t octets)
{
    if (octets.start == NULL) {
        Py_RETURN_NONE;
    }
    return PyBytes_FromStringAndSize((const char *)octets.start, octets.length);
}

/* Header keys are few and come again in every record: the last ones are kept with their text. */
#define NAMES 8
typedef struct {
    octets_t octets[NAMES];
    PyObject *text[NAMES];
    int next;
} names_t;

static PyObject *
header_name(names_t *names, octets_t key)
{
    for (int slot = 0; slot < NAMES; slot++) {
        if (names->text[slot] != NULL && names->octets[slot].length == key.length
            && memcmp(names->octets[slot].start, key.start, (size_t)key.length) == 0) {
            return Py_NewRef(names->text[slot]);
        }
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)key.start, key.length, "surrogateescape");
    if (text != NULL) {
        int slot = names->next;
        names->next = (slot + 1) % NAMES;
        Py_XDECREF(names->text[slot]);
        names->text[slot] = Py_NewRef(text);
        names->octets[slot] = key;
    }
    return text;
}

static PyObject *
new_headers(const record_t *record, at_t end, names_t *names)
{
    PyObject *headers = PyTuple_New(record->header_count);
    at_t p = record->headers;
    for (Py_ssize_t index = 0; headers != NULL && index < record->header_count; index++) {
        octets_t key, value;
        PyObject *pair = read_header(&p, end, &key, &value) ? PyTuple_New(2) : NULL;
        PyObject *name = pair != NULL ? header_name(names, key) : NULL;
        PyObject *content = name != NULL ? new_bytes(value) : NULL;
        if (content == NULL) {
            Py_XDECREF(name);
            Py_XDECREF(pair);
            Py_CLEAR(headers);
        }
        else {
            PyTuple_SetItem(pair, 0, name);
            PyTuple_SetItem(pair, 1, content);
            PyTuple_SetItem(headers, index, pair);
        }
    }
    return headers;
}

PyDoc_STRVAR(parse_doc,
"parse(data: bytes, count: int)\n"
"-> (timestamp deltas, offset deltas, keys, values, {index: headers}) or None\n\n"
"Exactly `count` records that fill `data`. For offset deltas 0, 1, 2, ... there is None.");

static PyObject *
parse(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *data;
    Py_ssize_t count;
    at_t p, end;
    if (!PyArg_ParseTuple(arguments, "Sn:parse", &data, &count)) {
        return NULL;
    }
    if (!open_body(data, count, &p, &end)) {
        return refused();
    }
    names_t names = {0};
    PyObject *result = NULL;
    PyObject *timestamps = PyList_New(count), *offsets = PyList_New(count);
    PyObject *keys = PyList_New(count), *values = PyList_New(count), *headers = PyDict_New();
    PyObject *timestamp = NULL; /* of the record before: most share theirs */
    int64_t timestamp_delta = 0;
    int contiguous = 1;
    if (!timestamps || !offsets || !keys || !values || !headers) {
        goto done;
    }
    for (Py_ssize_t index = 0; index < count; index++) {
        record_t record;
        if (!read_record(&p, end, &record)) {
            goto done;
        }
        if (timestamp == NULL || record.timestamp_delta != timestamp_delta) {
            Py_XDECREF(timestamp);
            timestamp_delta = record.timestamp_delta;
            timestamp = PyLong_FromLongLong(timestamp_delta);
            if (timestamp == NULL) {
                goto done;
            }
        }
        PyList_SetItem(timestamps, index, Py_NewRef(timestamp));
        if (contiguous && record.offset_delta != index) {
            contiguous = 0;
            for (Py_ssize_t before = 0; before < index; before++) {
                PyObject *delta = PyLong_FromSsize_t(before);
                if (delta == NULL) {
                    goto done;
                }
                PyList_SetItem(offsets, before, delta);
            }
        }
        if (!contiguous) {
            PyObject *delta = PyLong_FromLongLong(record.offset_delta);
            if (delta == NULL) {
                goto done;
            }
            PyList_SetItem(offsets, index, delta);
        }
        PyObject *key = new_bytes(record.key);
        if (key == NULL) {
            goto done;
        }
        PyList_SetItem(keys, index, key);
        PyObject *value = new_bytes(record.value);
        if (value == NULL) {
            goto done;
        }
        PyList_SetItem(values, index, value);
        if (record.header_count) {
            PyObject *number = PyLong_FromSsize_t(index);
            PyObject *some = number != NULL ? new_headers(&record, end, &names) : NULL;
            int failed = some == NULL || PyDict_SetItem(headers, number, some) < 0;
            Py_XDECREF(some);
            Py_XDECREF(number);
            if (failed) {
                goto done;
            }
        }
    }
    if (p == end) {
        result = PyTuple_Pack(5, timestamps, contiguous ? Py_None : offsets, keys, values, headers);
    }
done:
    Py_XDECREF(timestamp);
    for (int slot = 0; slot < NAMES; slot++) {
        Py_XDECREF(names.text[slot]);
    }
    Py_XDECREF(timestamps);
    Py_XDECREF(offsets);
    Py_XDECREF(keys);
    Py_XDECREF(values);
    Py_XDECREF(headers);
    return result != NULL ? result : refused();
}

/* --- Columns as Arrow lays them out --------------------------------------------------------------- */

/* What grows is the inside of a bytearray, which can be handed out without a copy. */
typedef struct {
    PyObject *array; /* NULL while there is nothing */
    char *bytes;
    size_t size;
    size_t room;
} buffer_t;

enum {
    KEY_VALID, KEY_ENDS, KEY_DATA,
    VALUE_VALID, VALUE_ENDS, VALUE_DATA,
    OFFSETS, TIMESTAMPS,
    HEADERS_VALID, HEADERS_ENDS,
    NAME_ENDS, NAME_DATA,
    CONTENT_VALID, CONTENT_ENDS, CONTENT_DATA,
    BUFFERS
};

enum { ROWS_KEY = 1, ROWS_VALUE = 2, ROWS_HEADERS = 4, ROWS_TIMESTAMP = 8 };

typedef struct {
    PyObject_HEAD
    int wanted;
    Py_ssize_t count;         /* rows */
    Py_ssize_t header_count;  /* headers in all of them */
    Py_ssize_t size_bytes;    /* of keys, values and headers */
    buffer_t buffers[BUFFERS];
} rows_t;

/* Room for `more` bytes behind what is there; NULL and a MemoryError if there is none. */
static inline char *
room_for(buffer_t *buffer, size_t more)
{
    if (buffer->room - buffer->size < more) {
        size_t room = buffer->room ? buffer->room : 256;
        while (room - buffer->size < more) {
            if (room > PY_SSIZE_T_MAX / 2) {
                PyErr_NoMemory();
                return NULL;
            }
            room *= 2;
        }
        if (buffer->array == NULL) {
            buffer->array = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)room);
            if (buffer->array == NULL) {
                return NULL;
            }
        }
        else if (PyByteArray_Resize(buffer->array, (Py_ssize_t)room) < 0) {
            return NULL;
        }
        buffer->bytes = PyByteArray_AsString(buffer->array);
        buffer->room = room;
    }
    return buffer->bytes + buffer->size;
}

static inline int
put(buffer_t *buffer, const void *bytes, size_t size)
{
    if (size == 0) {
        return 1;
    }
    char *to = room_for(buffer, size);
    if (to == NULL) {
        return 0;
    }
    memcpy(to, bytes, size);
    buffer->size += size;
    return 1;
}

static inline int
put_int64(buffer_t *buffer, int64_t number)
{
    return put(buffer, &number, sizeof number);
}

/* Arrow's offsets: where each entry ends, behind a first 0. */
static inline int
put_end(buffer_t *ends, size_t end)
{
    if (end > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a column of one Arrow batch is beyond 2 GiB");
        return 0;
    }
    int32_t zero = 0, number = (int32_t)end;
    return (ends->size || put(ends, &zero, sizeof zero)) && put(ends, &number, sizeof number);
}

/* Arrow's validity: bit `index`, which is the next one, lowest first. */
static inline int
put_bit(buffer_t *bits, Py_ssize_t index, int is_set)
{
    int bit = (int)(index & 7);
    char zero = 0;
    if (bit == 0 && !put(bits, &zero, 1)) {
        return 0;
    }
    char *last = bits->bytes + bits->size - 1;
    unsigned char below = (unsigned char)((unsigned char)*last & ((1u << bit) - 1));
    *last = (char)(below | (unsigned)(is_set != 0) << bit);
    return 1;
}

/* One entry of a binary column, whose three buffers follow each other. */
static inline int
put_binary(rows_t *rows, int column, Py_ssize_t index, octets_t octets)
{
    buffer_t *buffers = rows->buffers + column;
    rows->size_bytes += octets.length;
    return put_bit(buffers, index, octets.start != NULL)
        && put(buffers + 2, octets.start, (size_t)octets.length)
        && put_end(buffers + 1, buffers[2].size);
}

/* Arrow takes no text that is not UTF-8: what is not becomes U+FFFD. */
static int
put_name(rows_t *rows, octets_t name)
{
    buffer_t *ends = rows->buffers + NAME_ENDS, *data = rows->buffers + NAME_DATA;
    int ascii = 1;
    for (Py_ssize_t index = 0; index < name.length; index++) {
        ascii &= name.start[index] < 0x80;
    }
    rows->size_bytes += name.length;
    if (ascii) {
        return put(data, name.start, (size_t)name.length) && put_end(ends, data->size);
    }
    Py_ssize_t size;
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name.start, name.length, "replace");
    const char *bytes = text != NULL ? PyUnicode_AsUTF8AndSize(text, &size) : NULL;
    int done = bytes != NULL && put(data, bytes, (size_t)size) && put_end(ends, data->size);
    Py_XDECREF(text);
    return done;
}

static int
put_headers(rows_t *rows, const record_t *record, at_t end)
{
    at_t p = record->headers;
    for (Py_ssize_t left = record->header_count; left; left--) {
        octets_t name, content;
        if (!read_header(&p, end, &name, &content) || !put_name(rows, name)
            || !put_binary(rows, CONTENT_VALID, rows->header_count, content)) {
            return 0;
        }
        rows->header_count++;
    }
    return put_bit(rows->buffers + HEADERS_VALID, rows->count, record->header_count != 0)
        && put_end(rows->buffers + HEADERS_ENDS, (size_t)rows->header_count);
}

static int
put_row(rows_t *rows, const record_t *record, at_t end, int64_t offset, int64_t timestamp)
{
    int64_t timestamp_us;
    if (rows->wanted & ROWS_KEY && !put_binary(rows, KEY_VALID, rows->count, record->key)) {
        return 0;
    }
    if (rows->wanted & ROWS_VALUE && !put_binary(rows, VALUE_VALID, rows->count, record->value)) {
        return 0;
    }
    if (rows->wanted & ROWS_HEADERS && !put_headers(rows, record, end)) {
        return 0;
    }
    if (rows->wanted & ROWS_TIMESTAMP
        && (__builtin_mul_overflow(timestamp, (int64_t)1000, &timestamp_us)
            || !put_int64(rows->buffers + TIMESTAMPS, timestamp_us))) {
        return 0;
    }
    if (!put_int64(rows->buffers + OFFSETS, offset)) {
        return 0;
    }
    rows->count++;
    return 1;
}

PyDoc_STRVAR(add_doc,
"add(data: bytes, count, base_offset, last_offset_delta, base_timestamp, append_time: int | None,\n"
"    first, end, limit) -> int | None\n\n"
"Take the records of one batch whose offsets are in first <= offset < end, up to `limit` of them.\n"
"The offset of the first such record that was left, -1 if none was. None, and nothing is taken, if\n"
"the batch is not sound or a wanted time does not fit into microseconds.");

static PyObject *
rows_add(PyObject *self, PyObject *arguments)
{
    rows_t *rows = (rows_t *)self;
    PyObject *data, *append_time;
    Py_ssize_t count, limit;
    long long base_offset, last_delta, base_timestamp, first, stop;
    at_t p, end;
    if (!PyArg_ParseTuple(arguments, "SnLLLOLLn:add", &data, &count, &base_offset, &last_delta,
                          &base_timestamp, &append_time, &first, &stop, &limit)) {
        return NULL;
    }
    if (append_time != Py_None) {
        base_timestamp = PyLong_AsLongLong(append_time);
        if (base_timestamp == -1 && PyErr_Occurred()) {
            return NULL;
        }
    }
    int64_t last_offset;
    if (!open_body(data, count, &p, &end)
        || __builtin_add_overflow((int64_t)base_offset, (int64_t)last_delta, &last_offset)) {
        return refused();
    }
    Py_ssize_t count_before = rows->count, header_count_before = rows->header_count;
    Py_ssize_t size_before = rows->size_bytes;
    size_t before[BUFFERS];
    for (int index = 0; index < BUFFERS; index++) {
        before[index] = rows->buffers[index].size;
    }
    int64_t left = -1;
    for (Py_ssize_t index = 0; index < count; index++) {
        record_t record;
        int64_t timestamp = base_timestamp;
        if (!read_record(&p, end, &record) || record.offset_delta < 0
            || record.offset_delta > last_delta) {
            goto undo;
        }
        if (append_time == Py_None
            && __builtin_add_overflow(timestamp, record.timestamp_delta, &timestamp)) {
            goto undo;
        }
        int64_t offset;
        if (__builtin_add_overflow((int64_t)base_offset, record.offset_delta, &offset)) {
            goto undo;
        }
        if (offset < first || offset >= stop) {
            continue;
        }
        if (rows->count - count_before >= limit) {
            left = left == -1 ? offset : left;
        }
        else if (!put_row(rows, &record, end, offset, timestamp)) {
            goto undo;
        }
    }
    if (p == end) {
        return PyLong_FromLongLong(left);
    }
undo:
    rows->count = count_before;
    rows->header_count = header_count_before;
    rows->size_bytes = size_before;
    for (int index = 0; index < BUFFERS; index++) {
        rows->buffers[index].size = before[index];
    }
    return refused();
}

static void
forget(rows_t *rows)
{
    for (int index = 0; index < BUFFERS; index++) {
        Py_XDECREF(rows->buffers[index].array);
        rows->buffers[index] = (buffer_t){0};
    }
}

PyDoc_STRVAR(take_doc,
"take() -> (rows, headers, buffers)\n\n"
"What was gathered, and begin anew: the numbers of rows and of headers, and the 15 buffers in Arrow's\n"
"layout, each as bytes or bytearray.");

static PyObject *
rows_take(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    rows_t *rows = (rows_t *)self;
    PyObject *buffers = PyTuple_New(BUFFERS);
    for (int index = 0; buffers != NULL && index < BUFFERS; index++) {
        buffer_t *buffer = rows->buffers + index;
        PyObject *part;
        if (buffer->size == 0) {
            part = PyBytes_FromStringAndSize("", 0);
        }
        else if (PyByteArray_Resize(buffer->array, (Py_ssize_t)buffer->size) < 0) {
            part = NULL;
        }
        else {
            /* It may lie elsewhere now, and has room for no more. */
            buffer->bytes = PyByteArray_AsString(buffer->array);
            buffer->room = buffer->size;
            part = Py_NewRef(buffer->array);
        }
        if (part == NULL) {
            Py_CLEAR(buffers);
        }
        else {
            PyTuple_SetItem(buffers, index, part);
        }
    }
    if (buffers == NULL) {
        return NULL;
    }
    PyObject *result = Py_BuildValue("(nnN)", rows->count, rows->header_count, buffers);
    if (result != NULL) {
        rows->count = rows->header_count = rows->size_bytes = 0;
        forget(rows);
    }
    return result;
}

static PyObject *
rows_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    int wanted;
    if (named != NULL && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Rows() takes no arguments by name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "i:Rows", &wanted)) {
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    rows_t *rows = (rows_t *)allocate(type, 0); /* all zero */
    if (rows != NULL) {
        rows->wanted = wanted;
    }
    return (PyObject *)rows;
}

static void
rows_dealloc(PyObject *self)
{
    rows_t *rows = (rows_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    forget(rows);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef rows_methods[] = {
    {"add", rows_add, METH_VARARGS, add_doc},
    {"take", rows_take, METH_NOARGS, take_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef rows_members[] = {
    {"count", T_PYSSIZET, offsetof(rows_t, count), READONLY, "How many rows were gathered."},
    {"size_bytes", T_PYSSIZET, offsetof(rows_t, size_bytes), READONLY,
     "The bytes of their keys, values and headers."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot rows_slots[] = {
    {Py_tp_doc, "Rows(wanted: int)\n\nGathers records as Arrow's columns; 1: keys, 2: values, 4: headers,\n"
"8: timestamps."},
    {Py_tp_new, rows_new},
    {Py_tp_dealloc, rows_dealloc},
    {Py_tp_methods, rows_methods},
    {Py_tp_members, rows_members},
    {0, NULL},
};

static PyType_Spec rows_spec = {
    .name = "odradek_protocol.records._native.Rows",
    .basicsize = sizeof(rows_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = rows_slots,
};

/* --- Writing -------------------------------------------------------------------------------------- */

static inline size_t
varint_size(uint64_t raw)
{
    size_t size = 1;
    while (raw > 0x7F) {
        raw >>= 7;
        size++;
    }
    return size;
}

static inline char *
write_varint(char *to, uint64_t raw)
{
    while (raw > 0x7F) {
        *to++ = (char)((raw & 0x7F) | 0x80);
        raw >>= 7;
    }
    *to++ = (char)raw;
    return to;
}

static inline uint64_t
raw_of(int64_t number)
{
    return number < 0 ? ~((uint64_t)number << 1) : (uint64_t)number << 1;
}

/* The wire length of null is -1, whose varint is 1. */
static inline uint64_t
octets_raw(octets_t octets)
{
    return octets.start != NULL ? (uint64_t)octets.length << 1 : 1;
}

static inline char *
write_octets(char *to, octets_t octets)
{
    if (octets.length) {
        memcpy(to, octets.start, (size_t)octets.length);
    }
    return to + octets.length;
}

/* The body of a batch as it grows, with offset deltas 0, 1, 2, ... The estimates are the builder's, in
 * `builder.py`, where their numbers are explained. */
typedef struct {
    PyObject_HEAD
    char *body;
    size_t size, room;
    int64_t *timestamps;
    size_t timestamp_room;
    Py_ssize_t count;
    long long estimated_bytes;
    long long base_timestamp, max_timestamp;
    int64_t narrow_from, narrow_until;
    int sealed;
} writer_t;

#define BATCH_HEADER_BYTES 61
#define WIDEST_OVERHEAD_BYTES 31
#define NARROW_OVERHEAD_BYTES 11
#define NARROW_PAYLOAD_BYTES 8000
#define NARROW_RECORDS 8192
#define NARROW_MS 8192
#define FIRST_ROOM_BYTES 1024
#define FIRST_TIMESTAMPS 16

enum { NO_ROOM = -1, SLOW_PATH = -2, OUT_OF_MEMORY = -3 };

/* Room for so many bytes more and for one timestamp more; 0 if there is no memory. */
static int
writer_reserve(writer_t *writer, size_t bytes)
{
    if (writer->room - writer->size < bytes) {
        size_t room = writer->room < FIRST_ROOM_BYTES ? FIRST_ROOM_BYTES : writer->room * 2;
        if (room - writer->size < bytes) {
            room = writer->size + bytes;
        }
        char *body = PyMem_Realloc(writer->body, room);
        if (body == NULL) {
            return 0;
        }
        writer->body = body;
        writer->room = room;
    }
    if ((size_t)writer->count == writer->timestamp_room) {
        size_t room = writer->timestamp_room ? writer->timestamp_room * 2 : FIRST_TIMESTAMPS;
        int64_t *timestamps = PyMem_Realloc(writer->timestamps, room * sizeof(int64_t));
        if (timestamps == NULL) {
            return 0;
        }
        writer->timestamps = timestamps;
        writer->timestamp_room = room;
    }
    return 1;
}

/* Append a record; its index, or why not. `block`: the headers, as they are written. */
static Py_ssize_t
writer_append(writer_t *writer, int64_t timestamp, octets_t key, octets_t value, octets_t block,
              long long limit)
{
    Py_ssize_t index = writer->count;
    if (writer->sealed || index == INT32_MAX || key.length > INT32_MAX / 4
        || value.length > INT32_MAX / 4 || block.length > INT32_MAX / 4) {
        return SLOW_PATH;
    }
    long long payload = (long long)key.length + value.length + block.length;
    long long estimated = writer->estimated_bytes + payload;
    if (writer->narrow_from <= timestamp && timestamp < writer->narrow_until
        && payload < NARROW_PAYLOAD_BYTES && index < NARROW_RECORDS) {
        estimated += NARROW_OVERHEAD_BYTES;
    }
    else if (timestamp < -1 || timestamp == INT64_MAX) {
        return SLOW_PATH;
    }
    else {
        estimated += WIDEST_OVERHEAD_BYTES;
    }
    if (estimated > limit) {
        return NO_ROOM;
    }
    int64_t base = index ? writer->base_timestamp : timestamp;
    uint64_t timestamp_raw = raw_of(timestamp - base), index_raw = raw_of(index);
    uint64_t key_raw = octets_raw(key), value_raw = octets_raw(value);
    size_t length = 1 + varint_size(timestamp_raw) + varint_size(index_raw) + varint_size(key_raw)
        + varint_size(value_raw) + (size_t)payload;
    if (writer->size > INT32_MAX) {
        return SLOW_PATH;
    }
    if (!writer_reserve(writer, length + MAX_VARINT_BYTES)) {
        return OUT_OF_MEMORY;
    }
    char *to = write_varint(writer->body + writer->size, (uint64_t)length << 1);
    *to++ = 0; /* attributes */
    to = write_varint(write_varint(to, timestamp_raw), index_raw);
    to = write_octets(write_varint(to, key_raw), key);
    to = write_octets(write_varint(to, value_raw), value);
    to = write_octets(to, block);
    writer->size = (size_t)(to - writer->body);
    writer->timestamps[index] = timestamp;
    if (index == 0) {
        writer->base_timestamp = writer->max_timestamp = timestamp;
        writer->narrow_from = timestamp < NARROW_MS - 2 ? -1 : timestamp - NARROW_MS + 1;
        writer->narrow_until = timestamp > INT64_MAX - NARROW_MS ? INT64_MAX : timestamp + NARROW_MS;
    }
    else if (timestamp > writer->max_timestamp) {
        writer->max_timestamp = timestamp;
    }
    writer->estimated_bytes = estimated;
    writer->count = index + 1;
    return index;
}

/* Of an object that is None or bytes itself; 0 for all others, which are somebody else's to judge. */
static inline int
exact_octets(PyObject *object, octets_t *octets)
{
    octets->start = NULL;
    octets->length = 0;
    if (object == Py_None) {
        return 1;
    }
    if (!PyBytes_CheckExact(object)) {
        return 0;
    }
    octets->start = (at_t)PyBytes_AsString(object);
    octets->length = PyBytes_Size(object);
    return 1;
}

static const octets_t NO_HEADERS = {(at_t)"", 1}; /* their number, 0 */

/* int64, and no other object than an int; 0 otherwise. */
static inline int
exact_int64(PyObject *object, long long *number)
{
    int overflow;
    if (!PyLong_CheckExact(object)) {
        return 0;
    }
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return !overflow;
}

PyDoc_STRVAR(append_doc,
"append(timestamp: int, key: bytes | None, value: bytes | None, header_block: bytes | None,\n"
"       limit_bytes: int) -> int\n\n"
"The index of the record; -1 if it has no room within `limit_bytes`, as `estimated_bytes` counts them;\n"
"-2 for what `BatchBuilder.append` has to look at. Then nothing is added.");

static PyObject *
batch_writer_append(PyObject *self, PyObject *const *arguments, Py_ssize_t given)
{
    long long timestamp, limit;
    octets_t key, value, block;
    if (given != 5) {
        PyErr_Format(PyExc_TypeError, "append() takes 5 arguments (%zd given)", given);
        return NULL;
    }
    Py_ssize_t index = SLOW_PATH;
    if (exact_int64(arguments[0], &timestamp) && exact_octets(arguments[1], &key)
        && exact_octets(arguments[2], &value) && exact_octets(arguments[3], &block)
        && exact_int64(arguments[4], &limit)) {
        if (block.start == NULL) {
            block = NO_HEADERS;
        }
        index = writer_append((writer_t *)self, timestamp, key, value, block, limit);
    }
    return index == OUT_OF_MEMORY ? PyErr_NoMemory() : PyLong_FromSsize_t(index);
}

PyDoc_STRVAR(body_doc, "body() -> bytes\n\nThe records appended so far, as they are written; nothing once sealed.");

static PyObject *
batch_writer_body(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    writer_t *writer = (writer_t *)self;
    return PyBytes_FromStringAndSize(writer->body, (Py_ssize_t)writer->size);
}

PyDoc_STRVAR(timestamps_doc,
"timestamps() -> bytes\n\nThose of the records, each as an int64 of this machine.");

static PyObject *
batch_writer_timestamps(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    writer_t *writer = (writer_t *)self;
    return PyBytes_FromStringAndSize((char *)writer->timestamps,
                                     writer->count * (Py_ssize_t)sizeof(int64_t));
}

PyDoc_STRVAR(seal_doc, "seal() -> bytes\n\n`body`; from here on `append` answers -2.");

static PyObject *
batch_writer_seal(PyObject *self, PyObject *ignored)
{
    PyObject *body = batch_writer_body(self, ignored);
    writer_t *writer = (writer_t *)self;
    if (body != NULL) {
        writer->sealed = 1;
        PyMem_Free(writer->body);
        writer->body = NULL;
        writer->size = writer->room = 0;
    }
    return body;
}

static PyObject *
batch_writer_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    if (PyTuple_Size(arguments) || (named != NULL && PyDict_Size(named))) {
        PyErr_SetString(PyExc_TypeError, "BatchWriter() takes no arguments");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    writer_t *writer = (writer_t *)allocate(type, 0); /* all zero */
    if (writer != NULL) {
        writer->estimated_bytes = BATCH_HEADER_BYTES;
    }
    return (PyObject *)writer;
}

static void
batch_writer_dealloc(PyObject *self)
{
    writer_t *writer = (writer_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    PyMem_Free(writer->body);
    PyMem_Free(writer->timestamps);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef batch_writer_methods[] = {
    {"append", (PyCFunction)(void (*)(void))batch_writer_append, METH_FASTCALL, append_doc},
    {"body", batch_writer_body, METH_NOARGS, body_doc},
    {"timestamps", batch_writer_timestamps, METH_NOARGS, timestamps_doc},
    {"seal", batch_writer_seal, METH_NOARGS, seal_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef batch_writer_members[] = {
    {"count", T_PYSSIZET, offsetof(writer_t, count), READONLY, "How many records there are."},
    {"estimated_bytes", T_LONGLONG, offsetof(writer_t, estimated_bytes), READONLY,
     "The most that the batch takes, header and all."},
    {"base_timestamp", T_LONGLONG, offsetof(writer_t, base_timestamp), READONLY, "Of the first record."},
    {"max_timestamp", T_LONGLONG, offsetof(writer_t, max_timestamp), READONLY, "Of all records."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot batch_writer_slots[] = {
    {Py_tp_doc, "BatchWriter()\n\nThe records of one batch, written as they are appended."},
    {Py_tp_new, batch_writer_new},
    {Py_tp_dealloc, batch_writer_dealloc},
    {Py_tp_methods, batch_writer_methods},
    {Py_tp_members, batch_writer_members},
    {0, NULL},
};

static PyType_Spec batch_writer_spec = {
    .name = "odradek_protocol.records._native.BatchWriter",
    .basicsize = sizeof(writer_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = batch_writer_slots,
};

/* --- A place in a batch ------------------------------------------------------------------------ */

/* An owner and a number: what a producer hands out for every record, perhaps millions of them.
 *
 * The garbage collector is not told of one before `track` is called, so that it has no more to do with
 * every one that is kept. Who has an owner refer to what may hold the place calls that first. */
typedef struct {
    PyObject_HEAD
    PyObject *owner;
    Py_ssize_t index;
} place_t;

static PyObject *
new_place(PyTypeObject *type, PyObject *owner, Py_ssize_t index)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    place_t *place = (place_t *)allocate(type, 0);
    if (place != NULL) {
        PyObject_GC_UnTrack(place);
        place->owner = Py_NewRef(owner);
        place->index = index;
    }
    return (PyObject *)place;
}

PyDoc_STRVAR(at_doc, "at(owner: object, index: int) -> Self\n\nAs the class itself, in less time.");

static PyObject *
place_at(PyObject *type, PyObject *const *arguments, Py_ssize_t given)
{
    if (given != 2) {
        PyErr_Format(PyExc_TypeError, "at() takes 2 arguments (%zd given)", given);
        return NULL;
    }
    Py_ssize_t index = PyLong_AsSsize_t(arguments[1]);
    if (index == -1 && PyErr_Occurred()) {
        return NULL;
    }
    return new_place((PyTypeObject *)type, arguments[0], index);
}

static PyObject *
place_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    static char *names[] = {"owner", "index", NULL};
    PyObject *owner;
    Py_ssize_t index;
    if (!PyArg_ParseTupleAndKeywords(arguments, named, "On:Place", names, &owner, &index)) {
        return NULL;
    }
    return new_place(type, owner, index);
}

PyDoc_STRVAR(track_doc, "track()\n\nHave the garbage collector look at it.");

static PyObject *
place_track(PyObject *self, PyObject *Py_UNUSED(ignored))
{
    if (!PyObject_GC_IsTracked(self)) {
        PyObject_GC_Track(self);
    }
    Py_RETURN_NONE;
}

static int
place_traverse(PyObject *self, visitproc visit, void *arg)
{
    Py_VISIT(Py_TYPE(self));
    Py_VISIT(((place_t *)self)->owner);
    return 0;
}

static int
place_clear(PyObject *self)
{
    Py_CLEAR(((place_t *)self)->owner);
    return 0;
}

static void
place_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    PyObject_GC_UnTrack(self);
    place_clear(self);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef place_methods[] = {
    {"at", (PyCFunction)(void (*)(void))place_at, METH_FASTCALL | METH_CLASS, at_doc},
    {"track", place_track, METH_NOARGS, track_doc},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef place_members[] = {
    {"owner", T_OBJECT, offsetof(place_t, owner), READONLY, "Whose place it is."},
    {"index", T_PYSSIZET, offsetof(place_t, index), READONLY, "Its number there."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot place_slots[] = {
    {Py_tp_doc, "Place(owner: object, index: int)\n\nA place in what `owner` has."},
    {Py_tp_new, place_new},
    {Py_tp_dealloc, place_dealloc},
    {Py_tp_traverse, place_traverse},
    {Py_tp_clear, place_clear},
    {Py_tp_methods, place_methods},
    {Py_tp_members, place_members},
    {0, NULL},
};

static PyType_Spec place_spec = {
    .name = "odradek_protocol.records._native.Place",
    .basicsize = sizeof(place_t),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
    .slots = place_slots,
};

/* --- Arrow's columns as records ------------------------------------------------------------------- */

/* A column of Arrow: `offset` is the first row's, as slices have it. Buffers that are not there are empty. */
typedef struct {
    Py_buffer valid, ends, data;
    Py_ssize_t offset;
    int wide; /* ends are int64, not int32 */
} cells_t;

typedef struct {
    PyObject_HEAD
    Py_ssize_t count;
    int has_key, has_value, has_headers, has_timestamps, has_partitions;
    cells_t key, value;
    cells_t lists, items, names, contents; /* the headers: items are name and content, side by side */
    Py_ssize_t item_count;
    cells_t timestamps, partitions; /* int64 and int32 in `data` */
} columns_t;

/* What can be wrong with a row; `from_arrow.py` has the words. */
enum {
    FINE,
    DAMAGED_KEY, DAMAGED_VALUE, DAMAGED_HEADERS, DAMAGED_TIMESTAMP, DAMAGED_PARTITION,
    HEADER_WITHOUT_NAME, IMPOSSIBLE_TIMESTAMP, IMPOSSIBLE_PARTITION, TOO_LARGE
};

#define NO_TIMESTAMP (-1)
/* As `record_upper_bound` of builder.py counts. */
#define ANYWHERE_OVERHEAD_BYTES 22

/* Whether the entry at `at` is not null; -1 if the bitmap ends before it. */
static inline int
is_valid(const cells_t *cells, Py_ssize_t at)
{
    if (cells->valid.buf == NULL) {
        return 1;
    }
    if (at >> 3 >= cells->valid.len) {
        return -1;
    }
    return ((const uint8_t *)cells->valid.buf)[at >> 3] >> (at & 7) & 1;
}

/* Where the entry at `at` begins and ends, within `size`; 0 if that is impossible. */
static inline int
read_ends(const cells_t *cells, Py_ssize_t at, int64_t size, int64_t *start, int64_t *end)
{
    const char *ends = cells->ends.buf;
    if (cells->wide) {
        if (at > cells->ends.len / 8 - 2) {
            return 0;
        }
        memcpy(start, ends + at * 8, 8);
        memcpy(end, ends + at * 8 + 8, 8);
    }
    else {
        int32_t pair[2];
        if (at > cells->ends.len / 4 - 2) {
            return 0;
        }
        memcpy(pair, ends + at * 4, 8);
        *start = pair[0];
        *end = pair[1];
    }
    return 0 <= *start && *start <= *end && *end <= size;
}

static inline int
read_cell(const cells_t *cells, Py_ssize_t row, octets_t *octets)
{
    Py_ssize_t at = cells->offset + row;
    int valid = is_valid(cells, at);
    int64_t start, end;
    octets->start = NULL;
    octets->length = 0;
    if (valid <= 0) {
        return valid == 0;
    }
    if (!read_ends(cells, at, cells->data.len, &start, &end) || end - start > INT32_MAX / 4) {
        return 0;
    }
    octets->start = cells->data.buf != NULL ? (at_t)cells->data.buf + start : (at_t)"";
    octets->length = (Py_ssize_t)(end - start);
    return 1;
}

/* The number at `row`: 1, 0 for null, -1 if the buffers end before it. */
static inline int
read_number(const cells_t *cells, Py_ssize_t row, int64_t *number)
{
    Py_ssize_t at = cells->offset + row;
    int valid = is_valid(cells, at);
    if (valid <= 0) {
        return valid;
    }
    if (cells->wide) {
        if (at >= cells->data.len / 8) {
            return -1;
        }
        memcpy(number, (const char *)cells->data.buf + at * 8, 8);
    }
    else {
        int32_t narrow;
        if (at >= cells->data.len / 4) {
            return -1;
        }
        memcpy(&narrow, (const char *)cells->data.buf + at * 4, 4);
        *number = narrow;
    }
    return 1;
}

typedef struct {
    int64_t timestamp;
    octets_t key, value;
    int64_t first_item, end_item; /* of the headers */
    size_t block;                 /* what the headers take, with their number */
} cells_row_t;

static int
read_items(const columns_t *columns, Py_ssize_t row, cells_row_t *found)
{
    Py_ssize_t at = columns->lists.offset + row;
    int valid = is_valid(&columns->lists, at);
    if (valid <= 0) {
        return valid == 0 ? FINE : DAMAGED_HEADERS;
    }
    int64_t first, end;
    if (!read_ends(&columns->lists, at, columns->item_count, &first, &end)
        || end - first > INT32_MAX / 4) {
        return DAMAGED_HEADERS;
    }
    size_t block = varint_size((uint64_t)(end - first) << 1);
    for (int64_t item = first; item < end; item++) {
        octets_t name, content;
        int there = is_valid(&columns->items, columns->items.offset + item);
        if (there < 0 || !read_cell(&columns->names, item, &name)
            || !read_cell(&columns->contents, item, &content)) {
            return DAMAGED_HEADERS;
        }
        if (!there || name.start == NULL) {
            return HEADER_WITHOUT_NAME;
        }
        block += varint_size(octets_raw(name)) + (size_t)name.length
            + varint_size(octets_raw(content)) + (size_t)content.length;
        if (block > INT32_MAX / 4) {
            return TOO_LARGE;
        }
    }
    found->first_item = first;
    found->end_item = end;
    found->block = block;
    return FINE;
}

/* FINE, or what is wrong with the row. Its partition is read by who needs it. */
static inline int
read_cells(const columns_t *columns, Py_ssize_t row, int64_t now_ms, cells_row_t *found)
{
    found->timestamp = now_ms;
    found->key = found->value = (octets_t){NULL, 0};
    found->first_item = found->end_item = 0;
    found->block = 1;
    if (columns->has_key && !read_cell(&columns->key, row, &found->key)) {
        return DAMAGED_KEY;
    }
    if (columns->has_value && !read_cell(&columns->value, row, &found->value)) {
        return DAMAGED_VALUE;
    }
    if (columns->has_timestamps) {
        if (read_number(&columns->timestamps, row, &found->timestamp) < 0) {
            return DAMAGED_TIMESTAMP;
        }
        if (found->timestamp < NO_TIMESTAMP || found->timestamp == INT64_MAX) {
            return IMPOSSIBLE_TIMESTAMP;
        }
    }
    return columns->has_headers ? read_items(columns, row, found) : FINE;
}

PyDoc_STRVAR(check_doc,
"check(max_bytes: int, partitions: int) -> (row, what, number) or None\n\n"
"The first row that cannot be written, and why: one that takes more than `max_bytes` as a batch of its\n"
"own, or goes to a partition that is not there.");

static PyObject *
columns_check(PyObject *self, PyObject *arguments)
{
    columns_t *columns = (columns_t *)self;
    long long max_bytes, partitions;
    if (!PyArg_ParseTuple(arguments, "LL:check", &max_bytes, &partitions)) {
        return NULL;
    }
    for (Py_ssize_t row = 0; row < columns->count; row++) {
        cells_row_t found;
        int64_t number = 0;
        int what = read_cells(columns, row, 0, &found);
        if (what == IMPOSSIBLE_TIMESTAMP) {
            number = found.timestamp;
        }
        if (what == FINE && columns->has_partitions) {
            int there = read_number(&columns->partitions, row, &number);
            if (there < 0) {
                what = DAMAGED_PARTITION;
                number = 0;
            }
            else if (there && (number < 0 || number >= partitions)) {
                what = IMPOSSIBLE_PARTITION;
            }
        }
        if (what == FINE) {
            int64_t size = (int64_t)(found.block + (size_t)found.key.length
                                     + (size_t)found.value.length);
            size += size < NARROW_PAYLOAD_BYTES ? ANYWHERE_OVERHEAD_BYTES : WIDEST_OVERHEAD_BYTES;
            number = size + BATCH_HEADER_BYTES;
            if (number > max_bytes) {
                what = TOO_LARGE;
            }
        }
        if (what != FINE) {
            return Py_BuildValue("(niL)", row, what, (long long)number);
        }
    }
    Py_RETURN_NONE;
}

/* Kafka's hash of keys, as `murmur2.py` has it. */
static uint32_t
murmur2(octets_t key)
{
    const uint32_t m = 0x5BD1E995;
    at_t p = key.start;
    Py_ssize_t left = key.length;
    uint32_t h = 0x9747B28C ^ (uint32_t)left;
    for (; left >= 4; left -= 4, p += 4) {
        uint32_t k = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16
            | (uint32_t)p[3] << 24;
        k *= m;
        k = (k ^ k >> 24) * m;
        h = (h * m) ^ k;
    }
    if (left) {
        for (Py_ssize_t index = 0; index < left; index++) {
            h ^= (uint32_t)p[index] << (8 * index);
        }
        h *= m;
    }
    h = (h ^ h >> 13) * m;
    return h ^ h >> 15;
}

PyDoc_STRVAR(place_doc,
"place(partitions: int) -> (counts: bytes, order: bytes | None) or None\n\n"
"How many rows go to each partition, and, last, how many have neither partition nor key; and the rows\n"
"in that order, each group's as they come. Both are int32. No order: the rows are one group.");

static PyObject *
columns_place(PyObject *self, PyObject *arguments)
{
    columns_t *columns = (columns_t *)self;
    Py_ssize_t partitions;
    if (!PyArg_ParseTuple(arguments, "n:place", &partitions)) {
        return NULL;
    }
    if (partitions < 1 || partitions >= INT32_MAX || columns->count > INT32_MAX) {
        return refused();
    }
    PyObject *counts = PyBytes_FromStringAndSize(NULL, (partitions + 1) * 4);
    if (counts == NULL) {
        return NULL;
    }
    int32_t *groups = (int32_t *)(void *)PyBytes_AsString(counts);
    memset(groups, 0, (size_t)(partitions + 1) * 4);
    size_t room = (size_t)(columns->count + partitions + 2) * 4;
    int32_t *chosen = malloc(room), *next = chosen + columns->count;
    PyObject *order = NULL;
    if (chosen == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    for (Py_ssize_t row = 0; row < columns->count; row++) {
        int64_t partition = partitions;
        int there = columns->has_partitions ? read_number(&columns->partitions, row, &partition) : 0;
        if (there < 0 || (there && (partition < 0 || partition >= partitions))) {
            goto failed;
        }
        if (!there && columns->has_key) {
            octets_t key;
            if (!read_cell(&columns->key, row, &key)) {
                goto failed;
            }
            if (key.start != NULL) {
                partition = (murmur2(key) & 0x7FFFFFFF) % (uint32_t)partitions;
            }
        }
        chosen[row] = (int32_t)partition;
        groups[partition]++;
    }
    int32_t before = 0, used = 0;
    for (Py_ssize_t group = 0; group <= partitions; group++) {
        next[group] = before;
        before += groups[group];
        used += groups[group] != 0;
    }
    if (used <= 1) {
        order = Py_NewRef(Py_None);
    }
    else {
        order = PyBytes_FromStringAndSize(NULL, columns->count * 4);
        if (order == NULL) {
            goto failed;
        }
        int32_t *rows = (int32_t *)(void *)PyBytes_AsString(order);
        for (Py_ssize_t row = 0; row < columns->count; row++) {
            rows[next[chosen[row]]++] = (int32_t)row;
        }
    }
    free(chosen);
    return Py_BuildValue("(NN)", counts, order);
failed:
    free(chosen);
    Py_DECREF(counts);
    return refused();
}

/* The row at a place of the order; -1 if there is none. */
static inline Py_ssize_t
row_at(const columns_t *columns, const Py_buffer *order, Py_ssize_t place)
{
    int32_t row = 0;
    if (order->buf == NULL) {
        return place < columns->count ? place : -1;
    }
    if (place >= order->len / 4) {
        return -1;
    }
    memcpy(&row, (const char *)order->buf + place * 4, 4);
    return 0 <= row && row < columns->count ? row : -1;
}

static inline size_t
cells_length(const cells_row_t *row, int64_t base_timestamp, Py_ssize_t index)
{
    return 1 + varint_size(raw_of(row->timestamp - base_timestamp)) + varint_size(raw_of(index))
        + varint_size(octets_raw(row->key)) + (size_t)row->key.length
        + varint_size(octets_raw(row->value)) + (size_t)row->value.length + row->block;
}

static char *
write_items(char *to, char *end, const columns_t *columns, const cells_row_t *row)
{
    to = write_varint(to, (uint64_t)(row->end_item - row->first_item) << 1);
    for (int64_t item = row->first_item; item < row->end_item; item++) {
        octets_t name, content;
        if (!read_cell(&columns->names, item, &name)
            || !read_cell(&columns->contents, item, &content)
            || (size_t)(end - to) < varint_size(octets_raw(name)) + (size_t)name.length
                    + varint_size(octets_raw(content)) + (size_t)content.length) {
            return NULL;
        }
        to = write_octets(write_varint(to, octets_raw(name)), name);
        to = write_octets(write_varint(to, octets_raw(content)), content);
    }
    return to;
}

PyDoc_STRVAR(columns_encode_doc,
"encode(order: buffer | None, start, end, limit_bytes, now_ms)\n"
"-> (body: bytes, count, first timestamp, highest timestamp) or None\n\n"
"One batch of the rows from place `start` of the order on, before `end`: as many as fit into\n"
"`limit_bytes` with the header of the batch, at least one. Rows without a time have `now_ms`.");

static PyObject *
columns_encode(PyObject *self, PyObject *arguments)
{
    columns_t *columns = (columns_t *)self;
    PyObject *given, *body = NULL;
    Py_ssize_t start, stop;
    long long limit_bytes, now_ms;
    if (!PyArg_ParseTuple(arguments, "OnnLL:encode", &given, &start, &stop, &limit_bytes, &now_ms)) {
        return NULL;
    }
    Py_buffer order = {0};
    if (given != Py_None && PyObject_GetBuffer(given, &order, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    int64_t base_timestamp = 0, max_timestamp = 0;
    size_t size = 0;
    Py_ssize_t count = 0, most = stop - start;
    if (start < 0 || most < 1 || most > INT32_MAX || now_ms < NO_TIMESTAMP || now_ms == INT64_MAX) {
        goto done;
    }
    /* Nothing below runs Python code; if another thread writes into the buffers, sizes are seen to differ. */
    for (; count < most; count++) {
        cells_row_t row;
        Py_ssize_t at = row_at(columns, &order, start + count);
        if (at < 0 || read_cells(columns, at, now_ms, &row) != FINE) {
            goto done;
        }
        if (count == 0) {
            base_timestamp = max_timestamp = row.timestamp;
        }
        size_t length = cells_length(&row, base_timestamp, count);
        size_t more = varint_size((uint64_t)length << 1) + length;
        if (length > INT32_MAX || size + more > PY_SSIZE_T_MAX / 2) {
            goto done;
        }
        if (count && (long long)(BATCH_HEADER_BYTES + size + more) > limit_bytes) {
            break;
        }
        max_timestamp = row.timestamp > max_timestamp ? row.timestamp : max_timestamp;
        size += more;
    }
    body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (body == NULL) {
        goto done;
    }
    char *to = PyBytes_AsString(body), *end = to + size;
    for (Py_ssize_t index = 0; index < count; index++) {
        cells_row_t row;
        Py_ssize_t at = row_at(columns, &order, start + index);
        if (at < 0 || read_cells(columns, at, now_ms, &row) != FINE) {
            Py_CLEAR(body);
            goto done;
        }
        size_t length = cells_length(&row, base_timestamp, index);
        if ((size_t)(end - to) < varint_size((uint64_t)length << 1) + length) {
            Py_CLEAR(body);
            goto done;
        }
        to = write_varint(to, (uint64_t)length << 1);
        *to++ = 0; /* attributes */
        to = write_varint(to, raw_of(row.timestamp - base_timestamp));
        to = write_varint(to, raw_of(index));
        to = write_octets(write_varint(to, octets_raw(row.key)), row.key);
        to = write_octets(write_varint(to, octets_raw(row.value)), row.value);
        if (row.block == 1) {
            *to++ = 0;
        }
        else if ((to = write_items(to, end, columns, &row)) == NULL) {
            Py_CLEAR(body);
            goto done;
        }
    }
    if (to != end) {
        Py_CLEAR(body);
    }
done:
    if (order.obj != NULL) {
        PyBuffer_Release(&order);
    }
    if (body == NULL) {
        return refused();
    }
    return Py_BuildValue("(NnLL)", body, count, (long long)base_timestamp,
                         (long long)max_timestamp);
}

/* --- Columns: its life */

static int
take_buffer(PyObject *object, Py_buffer *buffer)
{
    return object == Py_None || PyObject_GetBuffer(object, buffer, PyBUF_SIMPLE) == 0;
}

/* From (wide, offset, valid, ends, data). What was taken is given back by `columns_dealloc`. */
static int
take_cells(PyObject *parts, cells_t *cells)
{
    PyObject *valid, *ends, *data;
    if (!PyTuple_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "Columns: a column is a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(parts, "pnOOO", &cells->wide, &cells->offset, &valid, &ends, &data)) {
        return 0;
    }
    if (cells->offset < 0 || cells->offset > PY_SSIZE_T_MAX / 32) {
        PyErr_SetString(PyExc_ValueError, "Columns: an impossible offset");
        return 0;
    }
    return take_buffer(valid, &cells->valid) && take_buffer(ends, &cells->ends)
        && take_buffer(data, &cells->data);
}

static int
take_column(PyObject *parts, int *there, cells_t *cells)
{
    *there = parts != Py_None;
    return !*there || take_cells(parts, cells);
}

static int
take_headers(PyObject *parts, columns_t *columns)
{
    PyObject *lists, *items, *names, *contents;
    columns->has_headers = parts != Py_None;
    if (!columns->has_headers) {
        return 1;
    }
    if (!PyTuple_Check(parts)) {
        PyErr_SetString(PyExc_TypeError, "Columns: headers are a tuple");
        return 0;
    }
    if (!PyArg_ParseTuple(parts, "nOOOO", &columns->item_count, &lists, &items, &names, &contents)) {
        return 0;
    }
    if (columns->item_count < 0 || columns->item_count > PY_SSIZE_T_MAX / 32) {
        PyErr_SetString(PyExc_ValueError, "Columns: an impossible number of headers");
        return 0;
    }
    return take_cells(lists, &columns->lists) && take_cells(items, &columns->items)
        && take_cells(names, &columns->names) && take_cells(contents, &columns->contents);
}

static void
give_back(cells_t *cells)
{
    Py_buffer *buffers[] = {&cells->valid, &cells->ends, &cells->data};
    for (int index = 0; index < 3; index++) {
        if (buffers[index]->obj != NULL) {
            PyBuffer_Release(buffers[index]);
        }
    }
}

static PyObject *
columns_new(PyTypeObject *type, PyObject *arguments, PyObject *named)
{
    PyObject *key, *value, *headers, *timestamps, *partitions;
    Py_ssize_t count;
    if (named != NULL && PyDict_Size(named)) {
        PyErr_SetString(PyExc_TypeError, "Columns() takes no arguments by name");
        return NULL;
    }
    if (!PyArg_ParseTuple(arguments, "nOOOOO:Columns", &count, &key, &value, &headers, &timestamps,
                          &partitions)) {
        return NULL;
    }
    if (count < 0 || count > INT32_MAX) {
        PyErr_SetString(PyExc_ValueError, "Columns: an impossible number of rows");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    columns_t *columns = (columns_t *)allocate(type, 0); /* all zero */
    if (columns == NULL) {
        return NULL;
    }
    columns->count = count;
    if (!take_column(key, &columns->has_key, &columns->key)
        || !take_column(value, &columns->has_value, &columns->value)
        || !take_headers(headers, columns)
        || !take_column(timestamps, &columns->has_timestamps, &columns->timestamps)
        || !take_column(partitions, &columns->has_partitions, &columns->partitions)) {
        Py_DECREF(columns);
        return NULL;
    }
    return (PyObject *)columns;
}

static void
columns_dealloc(PyObject *self)
{
    columns_t *columns = (columns_t *)self;
    PyTypeObject *type = Py_TYPE(self);
    cells_t *all[] = {&columns->key, &columns->value, &columns->lists, &columns->items,
                      &columns->names, &columns->contents, &columns->timestamps,
                      &columns->partitions};
    for (size_t index = 0; index < sizeof all / sizeof *all; index++) {
        give_back(all[index]);
    }
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyMethodDef columns_methods[] = {
    {"check", columns_check, METH_VARARGS, check_doc},
    {"place", columns_place, METH_VARARGS, place_doc},
    {"encode", columns_encode, METH_VARARGS, columns_encode_doc},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot columns_slots[] = {
    {Py_tp_doc, "Columns(count, key, value, headers, timestamps, partitions)\n\n"
     "Rows of Arrow's columns, to be written as records. A column is None or (wide, offset, valid, ends,\n"
     "data), headers are None or (items, lists, items, names, contents)."},
    {Py_tp_new, columns_new},
    {Py_tp_dealloc, columns_dealloc},
    {Py_tp_methods, columns_methods},
    {0, NULL},
};

static PyType_Spec columns_spec = {
    .name = "odradek_protocol.records._native.Columns",
    .basicsize = sizeof(columns_t),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = columns_slots,
};

/* --- A produced batch, and the request that brings it ------------------------------------------------ */

#define BATCH_HEADER_BYTES 61
#define BATCH_OVERHEAD_BYTES 12
#define BATCH_LENGTH_AT 8
#define BATCH_MAGIC_AT 16
#define BATCH_ATTRIBUTES_AT 21
#define BATCH_MAGIC 2
#define BATCH_TRANSACTIONAL 0x10

static inline uint64_t
big_endian(at_t at, int bytes)
{
    uint64_t number = 0;
    for (int index = 0; index < bytes; index++) {
        number = number << 8 | at[index];
    }
    return number;
}

static inline int16_t
int16_at(at_t at)
{
    return (int16_t)(uint16_t)big_endian(at, 2);
}

static inline int32_t
int32_at(at_t at)
{
    return (int32_t)(uint32_t)big_endian(at, 4);
}

static inline int64_t
int64_at(at_t at)
{
    return (int64_t)big_endian(at, 8);
}

PyDoc_STRVAR(check_batch_doc,
"check_batch(batch: buffer, bytes_max: int, earliest_ms: int, latest_ms: int, keys: bool)\n"
"-> the 13 fields of its header, with the size of the batch in the place of its length; or None\n\n"
"For exactly one batch of a client with base offset 0, uncompressed, with CreateTime, of at most\n"
"`bytes_max`: header and records fit each other, all timestamps are in `earliest_ms`..`latest_ms` and not\n"
"negative, and with `keys` all records have one. The checksum is left to the caller.");

static PyObject *
check_batch(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view;
    Py_ssize_t bytes_max;
    long long earliest_ms, latest_ms;
    int keys;
    if (!PyArg_ParseTuple(arguments, "y*nLLp:check_batch", &view, &bytes_max, &earliest_ms,
                          &latest_ms, &keys)) {
        return NULL;
    }
    PyObject *fields = NULL;
    at_t batch = view.buf;
    if (view.len < BATCH_HEADER_BYTES || view.len > bytes_max) {
        goto done;
    }
    int64_t base_offset = int64_at(batch);
    int64_t size_bytes = (int64_t)int32_at(batch + BATCH_LENGTH_AT) + BATCH_OVERHEAD_BYTES;
    int32_t leader_epoch = int32_at(batch + 12);
    uint32_t crc = (uint32_t)big_endian(batch + 17, 4);
    int16_t attributes = int16_at(batch + BATCH_ATTRIBUTES_AT);
    int32_t last_offset_delta = int32_at(batch + 23);
    int64_t base_timestamp = int64_at(batch + 27), max_timestamp = int64_at(batch + 35);
    int64_t producer_id = int64_at(batch + 43);
    int16_t producer_epoch = int16_at(batch + 51);
    int32_t base_sequence = int32_at(batch + 53), count = int32_at(batch + 57);
    if (base_offset != 0 || size_bytes != view.len || batch[BATCH_MAGIC_AT] != BATCH_MAGIC
        || attributes & ~BATCH_TRANSACTIONAL || count <= 0 || last_offset_delta != count - 1
        || (producer_id >= 0 ? base_sequence < 0 : attributes != 0)) {
        goto done;
    }
    bounds_t bounds;
    if (!scan_records(batch + BATCH_HEADER_BYTES, batch + view.len, count, &bounds)
        || !bounds.in_order || (keys && bounds.null_keys)) {
        goto done;
    }
    /* In halves of their range, so that no sum leaves it. */
    if (base_timestamp < 0 || base_timestamp > INT64_MAX / 2 || bounds.low_time < INT64_MIN / 2
        || bounds.high_time > INT64_MAX / 2) {
        goto done;
    }
    int64_t low_ms = base_timestamp + bounds.low_time, high_ms = base_timestamp + bounds.high_time;
    if (low_ms < 0 || low_ms < earliest_ms || high_ms > latest_ms || high_ms != max_timestamp) {
        goto done;
    }
    fields = Py_BuildValue("(LLiiIiiLLLiii)", (long long)base_offset, (long long)size_bytes,
                           (int)leader_epoch, BATCH_MAGIC, (unsigned int)crc, (int)attributes,
                           (int)last_offset_delta, (long long)base_timestamp,
                           (long long)max_timestamp, (long long)producer_id, (int)producer_epoch,
                           (int)base_sequence, (int)count);
done:
    PyBuffer_Release(&view);
    return fields != NULL ? fields : refused();
}

#define PRODUCE_KEY 0
#define PRODUCE_FIRST 3
#define PRODUCE_LAST 13
#define PRODUCE_FLEXIBLE_SINCE 9
#define PRODUCE_TOPIC_IDS_SINCE 13
#define TOPIC_ID_BYTES 16

/* Bytes at *at; 0 if so many are not left. */
static inline int
take(at_t *at, at_t end, int64_t size, at_t *found)
{
    if (size < 0 || size > end - *at) {
        return 0;
    }
    *found = *at;
    *at += size;
    return 1;
}

/* The length of a string, -1 for null: two bytes, or in flexible versions a varint that is no longer than it
 * needs be, and has four bytes at most. */
static int
take_length(at_t *at, at_t end, int flexible, int64_t *length)
{
    at_t found;
    if (!flexible) {
        if (!take(at, end, 2, &found)) {
            return 0;
        }
        *length = int16_at(found);
        return *length >= -1;
    }
    uint64_t raw;
    at_t start = *at;
    if (!read_raw(at, end, 4, &raw) || (*at - start > 1 && (*at)[-1] == 0)) {
        return 0;
    }
    *length = (int64_t)raw - 1;
    return 1;
}

/* The same of an array or of records, where the length has four bytes. */
static int
take_count(at_t *at, at_t end, int flexible, int64_t *count)
{
    at_t found;
    if (flexible) {
        return take_length(at, end, flexible, count);
    }
    if (!take(at, end, 4, &found)) {
        return 0;
    }
    *count = int32_at(found);
    return 1;
}

static PyObject *
new_text(at_t at, int64_t length)
{
    if (length < 0) {
        Py_RETURN_NONE;
    }
    return PyUnicode_DecodeUTF8((const char *)at, (Py_ssize_t)length, NULL);
}

PyDoc_STRVAR(read_one_batch_doc,
"read_one_batch(frame: buffer)\n"
"-> (version, correlation id, client id, transactional id, acks, timeout_ms, topic, its field, partition,\n"
"attributes, records) or None\n\n"
"See `produce_frames.py`.");

static PyObject *
read_one_batch(PyObject *Py_UNUSED(module), PyObject *frame)
{
    Py_buffer view;
    if (PyObject_GetBuffer(frame, &view, PyBUF_SIMPLE) < 0) {
        return NULL;
    }
    PyObject *found = NULL, *client_id = NULL, *transactional_id = NULL, *topic = NULL;
    PyObject *topic_field = NULL, *records = NULL;
    at_t start = view.buf, p = start, end = start + view.len, head;
    if (!take(&p, end, 8, &head) || int16_at(head) != PRODUCE_KEY) {
        goto done;
    }
    int version = int16_at(head + 2);
    int32_t correlation_id = int32_at(head + 4);
    int flexible = version >= PRODUCE_FLEXIBLE_SINCE;
    int64_t client_bytes, transactional_bytes, topics, topic_bytes, partitions, records_bytes;
    at_t client_at = NULL, transactional_at = NULL, settings, tags, topic_at, index_at, records_at;
    if (version < PRODUCE_FIRST || version > PRODUCE_LAST
        || !take_length(&p, end, 0, &client_bytes)
        || (client_bytes >= 0 && !take(&p, end, client_bytes, &client_at))
        || (flexible && (!take(&p, end, 1, &tags) || *tags))
        || !take_length(&p, end, flexible, &transactional_bytes)
        || (transactional_bytes >= 0 && !take(&p, end, transactional_bytes, &transactional_at))
        || !take(&p, end, 6, &settings) || !take_count(&p, end, flexible, &topics)
        || topics != 1) {
        goto done;
    }
    at_t field_at = p;
    if (version >= PRODUCE_TOPIC_IDS_SINCE) {
        topic_bytes = TOPIC_ID_BYTES;
    }
    else if (!take_length(&p, end, flexible, &topic_bytes)) {
        goto done;
    }
    if (!take(&p, end, topic_bytes, &topic_at)) {
        goto done;
    }
    at_t field_end = p;
    if (!take_count(&p, end, flexible, &partitions) || partitions != 1
        || !take(&p, end, 4, &index_at) || !take_count(&p, end, flexible, &records_bytes)
        || records_bytes < BATCH_HEADER_BYTES || !take(&p, end, records_bytes, &records_at)
        || records_at[BATCH_MAGIC_AT] != BATCH_MAGIC) {
        goto done;
    }
    /* The tags of partition, topic and request; and nothing behind them. */
    if (flexible && (!take(&p, end, 3, &tags) || tags[0] || tags[1] || tags[2])) {
        goto done;
    }
    if (p != end) {
        goto done;
    }
    client_id = new_text(client_at, client_bytes);
    transactional_id = client_id ? new_text(transactional_at, transactional_bytes) : NULL;
    topic_field = transactional_id
        ? PyBytes_FromStringAndSize((const char *)field_at, field_end - field_at) : NULL;
    if (topic_field == NULL) {
        goto done;
    }
    topic = version >= PRODUCE_TOPIC_IDS_SINCE ? Py_NewRef(topic_field)
                                               : new_text(topic_at, topic_bytes);
    records = topic ? PySequence_GetSlice(frame, records_at - start,
                                          records_at - start + (Py_ssize_t)records_bytes) : NULL;
    if (records != NULL) {
        found = Py_BuildValue("(iiOOiiOOiiO)", version, (int)correlation_id, client_id,
                              transactional_id, (int)int16_at(settings), (int)int32_at(settings + 2),
                              topic, topic_field, (int)int32_at(index_at),
                              (int)int16_at(records_at + BATCH_ATTRIBUTES_AT), records);
    }
done:
    Py_XDECREF(client_id);
    Py_XDECREF(transactional_id);
    Py_XDECREF(topic);
    Py_XDECREF(topic_field);
    Py_XDECREF(records);
    PyBuffer_Release(&view);
    if (found == NULL && PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_UnicodeDecodeError)) {
        PyErr_Clear(); /* The codecs say what is wrong with it. */
    }
    return found != NULL ? found : refused();
}

/* --- Lines of text ------------------------------------------------------------------------------- */

/* Where `what` begins, at `from` or behind it; `end` if nowhere. */
static at_t
find_octets(at_t from, at_t end, octets_t what)
{
    while (end - from >= what.length) {
        at_t found = memchr(from, *what.start, (size_t)(end - from - what.length + 1));
        if (found == NULL) {
            break;
        }
        if (memcmp(found, what.start, (size_t)what.length) == 0) {
            return found;
        }
        from = found + 1;
    }
    return end;
}

PyDoc_STRVAR(split_lines_doc,
"split_lines(data: bytes, delimiter: bytes) -> (values: bytes, ends: bytes, used: int) or None\n\n"
"What stands before each delimiter, joined; as int32s where each of them begins there, and where the last\n"
"one ends; and how much of the data they and their delimiters are.");

static PyObject *
split_lines(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *data, *delimiter, *values = NULL, *result = NULL;
    octets_t text, between;
    if (!PyArg_ParseTuple(arguments, "SS:split_lines", &data, &delimiter)) {
        return NULL;
    }
    text.start = (at_t)PyBytes_AsString(data);
    text.length = PyBytes_Size(data);
    between.start = (at_t)PyBytes_AsString(delimiter);
    between.length = PyBytes_Size(delimiter);
    if (text.length > INT32_MAX || between.length == 0) {
        return refused();
    }
    size_t count = 0, room = (size_t)text.length / 64 + 16;
    int32_t *ends = PyMem_Malloc(room * sizeof(int32_t));
    values = PyBytes_FromStringAndSize(NULL, text.length);
    if (ends == NULL || values == NULL) {
        PyErr_NoMemory();
        goto failed;
    }
    at_t p = text.start, end = text.start + text.length, found;
    char *first = PyBytes_AsString(values), *to = first;
    ends[count++] = 0;
    while ((found = find_octets(p, end, between)) != end) {
        if (count == room) {
            int32_t *more = PyMem_Realloc(ends, room * 2 * sizeof(int32_t));
            if (more == NULL) {
                PyErr_NoMemory();
                goto failed;
            }
            ends = more;
            room *= 2;
        }
        memcpy(to, p, (size_t)(found - p));
        to += found - p;
        ends[count++] = (int32_t)(to - first);
        p = found + between.length;
    }
    result = Py_BuildValue("(y#y#n)", first, (Py_ssize_t)(to - first), (char *)ends,
                           (Py_ssize_t)(count * sizeof(int32_t)), (Py_ssize_t)(p - text.start));
failed:
    PyMem_Free(ends);
    Py_XDECREF(values);
    return result;
}

PyDoc_STRVAR(join_lines_doc,
"join_lines(values: bytes, ends: bytes, delimiter: bytes) -> bytes or None\n\n"
"The other way round: each value, and the delimiter behind it.");

static PyObject *
join_lines(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer values, ends, delimiter;
    PyObject *lines = NULL;
    if (!PyArg_ParseTuple(arguments, "y*y*y*:join_lines", &values, &ends, &delimiter)) {
        return NULL;
    }
    Py_ssize_t count = ends.len / (Py_ssize_t)sizeof(int32_t) - 1;
    const char *at = ends.buf;
    int32_t start = 0, end;
    for (Py_ssize_t index = 0; index <= count; index++) { /* ascending, and within the values */
        memcpy(&end, at + index * (Py_ssize_t)sizeof(int32_t), sizeof(int32_t));
        if (end < start || end > values.len || (index == 0 && end != 0)) {
            goto refuse;
        }
        start = end;
    }
    if (count > 0 && delimiter.len > (PY_SSIZE_T_MAX - values.len) / count) {
        goto refuse;
    }
    lines = PyBytes_FromStringAndSize(NULL, count > 0 ? start + count * delimiter.len : 0);
    if (lines != NULL) {
        char *to = PyBytes_AsString(lines);
        const int32_t last = start;
        start = 0;
        for (Py_ssize_t index = 1; index <= count; index++) {
            memcpy(&end, at + index * (Py_ssize_t)sizeof(int32_t), sizeof(int32_t));
            /* A thread that reads from a file into `ends` does not wait for this one: look again. */
            if (end < start || end > last) {
                Py_CLEAR(lines);
                goto refuse;
            }
            memcpy(to, (const char *)values.buf + start, (size_t)(end - start));
            to += end - start;
            memcpy(to, delimiter.buf, (size_t)delimiter.len);
            to += delimiter.len;
            start = end;
        }
        if (count > 0 && start != last) { /* the last bytes were never written */
            Py_CLEAR(lines);
            goto refuse;
        }
    }
    goto done;
refuse:
    lines = refused();
done:
    PyBuffer_Release(&values);
    PyBuffer_Release(&ends);
    PyBuffer_Release(&delimiter);
    return lines;
}

/* --- The module ------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"parse", parse, METH_VARARGS, parse_doc},
    {"scan", scan, METH_VARARGS, scan_doc},
    {"check_batch", check_batch, METH_VARARGS, check_batch_doc},
    {"read_one_batch", read_one_batch, METH_O, read_one_batch_doc},
    {"split_lines", split_lines, METH_VARARGS, split_lines_doc},
    {"join_lines", join_lines, METH_VARARGS, join_lines_doc},
    {NULL, NULL, 0, NULL},
};

static int
execute(PyObject *module)
{
    const char *pure = getenv("ODRADEK_PURE");
    if (pure != NULL && *pure != '\0' && strcmp(pure, "0") != 0) {
        PyErr_SetString(PyExc_ImportError, "ODRADEK_PURE is set");
        return -1;
    }
    PyType_Spec *specs[] = {&rows_spec, &batch_writer_spec, &place_spec, &columns_spec};
    int failed = 0;
    for (size_t index = 0; index < sizeof specs / sizeof *specs && !failed; index++) {
        PyObject *type = PyType_FromModuleAndSpec(module, specs[index], NULL);
        failed = type == NULL || PyModule_AddType(module, (PyTypeObject *)type) < 0;
        Py_XDECREF(type);
    }
    PyObject *crc = PyLong_FromUnsignedLong(NATIVE_SOURCE_CRC);
    if (failed || crc == NULL || PyModule_AddObjectRef(module, "SOURCE_CRC", crc) < 0) {
        Py_XDECREF(crc);
        return -1;
    }
    Py_DECREF(crc);
    return PyModule_AddIntConstant(module, "ABI", NATIVE_ABI);
}

static PyModuleDef_Slot slots[] = {
    {Py_mod_exec, execute},
    {0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "odradek_protocol.records._native",
    .m_doc = "The record codec, compiled.",
    .m_size = 0,
    .m_methods = methods,
    .m_slots = slots,
};

PyMODINIT_FUNC
PyInit__native(void)
{
    return PyModuleDef_Init(&definition);
}
