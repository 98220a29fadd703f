"""What tests need around them: servers, proxies, faults."""
