"""A plan as one self-contained HTML page: inline SVG and CSS, no script, no network. `cora.report.page` makes it."""
