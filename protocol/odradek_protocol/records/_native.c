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
#define NATIVE_ABI 3

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

static PyObject *
scan(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    Py_buffer view;
    Py_ssize_t count;
    if (!PyArg_ParseTuple(arguments, "y*n:scan", &view, &count)) {
        return NULL;
    }
    at_t p = view.buf, end = p + view.len;
    int sound = count > 0 && count <= view.len / MIN_RECORD_BYTES;
    int in_order = 1, null_keys = 0;
    int64_t low_offset = INT64_MAX, high_offset = INT64_MIN;
    int64_t low_time = INT64_MAX, high_time = INT64_MIN;
    for (Py_ssize_t index = 0; sound && index < count; index++) {
        record_t record;
        sound = read_record(&p, end, &record);
        if (sound) {
            int64_t offset = record.offset_delta, time = record.timestamp_delta;
            in_order &= offset == index;
            null_keys |= record.key.start == NULL;
            low_offset = offset < low_offset ? offset : low_offset;
            high_offset = offset > high_offset ? offset : high_offset;
            low_time = time < low_time ? time : low_time;
            high_time = time > high_time ? time : high_time;
        }
    }
    sound = sound && p == end;
    PyBuffer_Release(&view);
    if (!sound) {
        Py_RETURN_NONE;
    }
    return Py_BuildValue("(LLiLLi)", (long long)low_offset, (long long)high_offset, in_order,
                         (long long)low_time, (long long)high_time, null_keys);
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

enum { ROWS_KEY = 1, ROWS_VALUE = 2, ROWS_HEADERS = 4 };

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
put_row(rows_t *rows, const record_t *record, at_t end, int64_t offset, int64_t timestamp_us)
{
    if (rows->wanted & ROWS_KEY && !put_binary(rows, KEY_VALID, rows->count, record->key)) {
        return 0;
    }
    if (rows->wanted & ROWS_VALUE && !put_binary(rows, VALUE_VALID, rows->count, record->value)) {
        return 0;
    }
    if (rows->wanted & ROWS_HEADERS && !put_headers(rows, record, end)) {
        return 0;
    }
    if (!put_int64(rows->buffers + OFFSETS, offset)
        || !put_int64(rows->buffers + TIMESTAMPS, timestamp_us)) {
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
"the batch is not sound or a time does not fit into microseconds.");

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
        int64_t timestamp_us = base_timestamp;
        if (!read_record(&p, end, &record) || record.offset_delta < 0
            || record.offset_delta > last_delta) {
            goto undo;
        }
        if (append_time == Py_None
            && __builtin_add_overflow(timestamp_us, record.timestamp_delta, &timestamp_us)) {
            goto undo;
        }
        if (__builtin_mul_overflow(timestamp_us, (int64_t)1000, &timestamp_us)) {
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
        else if (!put_row(rows, &record, end, offset, timestamp_us)) {
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
    {Py_tp_doc, "Rows(wanted: int)\n\nGathers records as Arrow's columns; 1: keys, 2: values, 4: headers."},
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

typedef struct {
    int64_t timestamp_delta;
    octets_t key, value, block;
    size_t length; /* of the record, without the length itself */
} row_t;

static int
row_octets(PyObject *object, octets_t *octets)
{
    octets->start = NULL;
    octets->length = 0;
    if (object == Py_None) {
        return 1;
    }
    char *bytes;
    if (object == NULL || !PyBytes_Check(object)
        || PyBytes_AsStringAndSize(object, &bytes, &octets->length) < 0) {
        return 0;
    }
    octets->start = (at_t)bytes;
    return octets->length <= INT32_MAX / 4;
}

static inline uint64_t
octets_raw(octets_t octets)
{
    return octets.start != NULL ? (uint64_t)octets.length << 1 : 1;
}

/* A row as the builder keeps it; 0 if it is none, or one so large that the pure twin may judge it. */
static int
read_row(PyObject *rows, PyObject *blocks, Py_ssize_t index, int64_t base_timestamp, row_t *row)
{
    PyObject *tuple = PyList_GetItem(rows, index);
    if (tuple == NULL || !PyTuple_Check(tuple) || PyTuple_Size(tuple) != 4) {
        return 0;
    }
    PyObject *number = PyTuple_GetItem(tuple, 0);
    if (!PyLong_Check(number)) {
        return 0; /* to ask it for one would run its code */
    }
    long long timestamp = PyLong_AsLongLong(number);
    if ((timestamp == -1 && PyErr_Occurred())
        || __builtin_sub_overflow((int64_t)timestamp, base_timestamp, &row->timestamp_delta)
        || !row_octets(PyTuple_GetItem(tuple, 1), &row->key)
        || !row_octets(PyTuple_GetItem(tuple, 2), &row->value)) {
        return 0;
    }
    row->block.start = (at_t)""; /* no headers: one byte, 0 */
    row->block.length = 1;
    if (blocks != NULL) {
        PyObject *which = PyLong_FromSsize_t(index);
        PyObject *block = which != NULL ? PyDict_GetItemWithError(blocks, which) : NULL;
        Py_XDECREF(which);
        if (PyErr_Occurred()
            || (block != NULL && (!row_octets(block, &row->block) || row->block.start == NULL))) {
            return 0;
        }
    }
    row->length = 1 + varint_size(raw_of(row->timestamp_delta)) + varint_size(raw_of(index))
        + varint_size(octets_raw(row->key)) + (size_t)row->key.length
        + varint_size(octets_raw(row->value)) + (size_t)row->value.length
        + (size_t)row->block.length;
    return row->length <= INT32_MAX;
}

static inline char *
write_octets(char *to, octets_t octets)
{
    if (octets.length) {
        memcpy(to, octets.start, (size_t)octets.length);
    }
    return to + octets.length;
}

PyDoc_STRVAR(encode_doc,
"encode(rows: list, header_blocks: dict[int, bytes], base_timestamp: int) -> bytes | None\n\n"
"The body of a batch with offset deltas 0, 1, 2, ...; rows are (timestamp, key, value, ignored).");

static PyObject *
encode(PyObject *Py_UNUSED(module), PyObject *arguments)
{
    PyObject *rows, *blocks, *base;
    if (!PyArg_ParseTuple(arguments, "O!O!O!:encode", &PyList_Type, &rows, &PyDict_Type, &blocks,
                          &PyLong_Type, &base)) {
        return NULL;
    }
    long long base_timestamp = PyLong_AsLongLong(base);
    if (base_timestamp == -1 && PyErr_Occurred()) {
        PyErr_Clear();
        return refused();
    }
    Py_ssize_t count = PyList_Size(rows);
    if (PyDict_Size(blocks) == 0) {
        blocks = NULL;
    }
    if (count > INT32_MAX) {
        return refused();
    }
    /* Nothing below runs Python code, so the rows of the second pass are those of the first. */
    size_t size = 0;
    for (Py_ssize_t index = 0; index < count; index++) {
        row_t row;
        if (!read_row(rows, blocks, index, base_timestamp, &row)) {
            PyErr_Clear();
            return refused();
        }
        size += varint_size((uint64_t)row.length << 1) + row.length;
        if (size > PY_SSIZE_T_MAX / 2) {
            return refused();
        }
    }
    PyObject *body = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (body == NULL) {
        return NULL;
    }
    char *to = PyBytes_AsString(body), *end = to + size;
    for (Py_ssize_t index = 0; index < count; index++) {
        row_t row;
        if (!read_row(rows, blocks, index, base_timestamp, &row)
            || (size_t)(end - to) < varint_size((uint64_t)row.length << 1) + row.length) {
            PyErr_Clear();
            Py_DECREF(body);
            return refused();
        }
        to = write_varint(to, (uint64_t)row.length << 1);
        *to++ = 0; /* attributes */
        to = write_varint(to, raw_of(row.timestamp_delta));
        to = write_varint(to, raw_of(index));
        to = write_octets(write_varint(to, octets_raw(row.key)), row.key);
        to = write_octets(write_varint(to, octets_raw(row.value)), row.value);
        to = write_octets(to, row.block);
    }
    return body;
}

/* --- The module ------------------------------------------------------------------------------------ */

static PyMethodDef methods[] = {
    {"parse", parse, METH_VARARGS, parse_doc},
    {"encode", encode, METH_VARARGS, encode_doc},
    {"scan", scan, METH_VARARGS, scan_doc},
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
    PyObject *type = PyType_FromModuleAndSpec(module, &rows_spec, NULL);
    if (type == NULL) {
        return -1;
    }
    int failed = PyModule_AddType(module, (PyTypeObject *)type) < 0;
    Py_DECREF(type);
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
