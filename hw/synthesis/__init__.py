"""What a block would be as hardware: gates, area, longest paths and LUTs, from open tools and libraries."""
