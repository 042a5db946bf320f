"""What are pprof's messages? profile.proto, as descriptors built on first use.

Built at run time because generated code would tie the package to one range of protobuf versions.
Field numbers and meanings: github.com/google/pprof/blob/main/proto/profile.proto.
"""

from __future__ import annotations

from functools import cache
from typing import Any

_PACKAGE = "otel_gpu.perftools.profiles"

# One line a message; a field is `number name type`, `*` means repeated. Names beginning with a capital are messages.
_MESSAGES = {
    "Profile": "1 sample_type *ValueType, 2 sample *Sample, 3 mapping *Mapping, 4 location *Location, "
    "5 function *Function, 6 string_table *string, 7 drop_frames int64, 8 keep_frames int64, 9 time_nanos int64, "
    "10 duration_nanos int64, 11 period_type ValueType, 12 period int64, 13 comment *int64, "
    "14 default_sample_type int64, 15 doc_url int64",
    "ValueType": "1 type int64, 2 unit int64",
    "Sample": "1 location_id *uint64, 2 value *int64, 3 label *Label",
    "Label": "1 key int64, 2 str int64, 3 num int64, 4 num_unit int64",
    "Mapping": "1 id uint64, 2 memory_start uint64, 3 memory_limit uint64, 4 file_offset uint64, 5 filename int64, "
    "6 build_id int64, 7 has_functions bool, 8 has_filenames bool, 9 has_line_numbers bool, 10 has_inline_frames bool",
    "Location": "1 id uint64, 2 mapping_id uint64, 3 address uint64, 4 line *Line, 5 is_folded bool",
    "Line": "1 function_id uint64, 2 line int64, 3 column int64",
    "Function": "1 id uint64, 2 name int64, 3 system_name int64, 4 filename int64, 5 start_line int64",
}


@cache
def profile_class() -> Any:
    """Return the message class of pprof's Profile."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

    field_type = descriptor_pb2.FieldDescriptorProto
    scalars = {
        "int64": field_type.TYPE_INT64,
        "uint64": field_type.TYPE_UINT64,
        "bool": field_type.TYPE_BOOL,
        "string": field_type.TYPE_STRING,
    }
    file = descriptor_pb2.FileDescriptorProto(name="otel_gpu/pprof.proto", package=_PACKAGE, syntax="proto3")
    for message_name, fields in _MESSAGES.items():
        message = file.message_type.add(name=message_name)
        for entry in fields.split(", "):
            number, name, type_name = entry.split()
            repeated = type_name.startswith("*")
            type_name = type_name.lstrip("*")
            message.field.add(
                name=name,
                number=int(number),
                label=field_type.LABEL_REPEATED if repeated else field_type.LABEL_OPTIONAL,
                type=scalars.get(type_name, field_type.TYPE_MESSAGE),
                type_name=None if type_name in scalars else f".{_PACKAGE}.{type_name}",
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.Profile"))
